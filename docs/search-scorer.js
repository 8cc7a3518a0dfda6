// Order of the site's search: pages for users and operators before reference, design and generated pages.
// By page, else by folder.
const weight = {
  versions: 3, kubernetes: 3, reference: 1,
  "start/": 3, "use/": 3, "operate/": 2, "understand/": 2, "reference/": 1, "design/": 0.5, "_made/": 0.5,
};
const weightOf = page => weight[page] ?? weight[page.slice(0, page.indexOf("/") + 1)] ?? 2;

var Scorer = {
  score: ([page, , , , score]) => score * weightOf(page),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
