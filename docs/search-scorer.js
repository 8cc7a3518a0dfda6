// Order of the site's search: pages for users and operators before reference, design and generated pages.
// By folder, or by page where it lies in none. `reference` is the page of magics, too.
const weight = { start: 3, use: 3, versions: 3, kubernetes: 3, operate: 2, understand: 2, reference: 1, design: 0.5, _made: 0.5 };

var Scorer = {
  score: ([page, , , , score]) => score * (weight[page.split("/")[0]] ?? 2),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
