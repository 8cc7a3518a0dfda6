/** Heights of rows in pixels, as `style/base.css` draws them: they are known before anything is drawn. */

/** a group's title */
export const GROUP = 26;
/** a GPU's first line */
export const GPU = 26;
/** the bar and the sparkline of a GPU */
export const METERS = 20;
/** a run, a place in the queue, a kernel: two lines */
export const ROW = 42;
/** one name and its value in an opened row */
export const FACT = 18;
/** the buttons of an opened row */
export const BUTTONS = 32;
/** what came of an action */
export const FEEDBACK = 36;
/** around the facts of an opened row */
export const PADDING = 6;
/** a section below its title, at least */
export const SECTION = 48;
/** the table of GPU-hours */
export const USAGE = 91;
/** the bars of the last days */
export const CHART = 118;
/** what advice on a notebook says in all, and of one cell */
export const CONCLUSION = 116;
export const ADVICE = 96;
/** the line above the queue: who holds what it waits for. */
export const HOLDERS = 24;
