// Order of the site's search: pages for users and operators before reference, design and generated pages.
// By page, else by folder. Lists of questions lead on to other pages, so these come first.
const weight = {
  versions: 3, kubernetes: 3, reference: 1, "start/faq": 1.5, "use/faq-runs": 1.5,
  "start/": 3, "use/": 3, "operate/": 2, "understand/": 2, "reference/": 1, "design/": 0.5, "_made/": 0.5,
};
const weightOf = page => weight[page] ?? weight[page.slice(0, page.indexOf("/") + 1)] ?? 2;

// Sphinx takes the best of the words that were asked for. So of two pages, the one whose title has more of them is better.
const shareInTitle = title => {
  const asked = new URLSearchParams(location.search).get("q") ?? "";
  const words = asked.toLowerCase().match(/[\w/]{2,}/g) ?? [];
  const found = words.filter(word => title.toLowerCase().includes(word));
  return words.length > 0 ? found.length / words.length : 0;
};

var Scorer = {
  score: ([page, title, , , score]) => score * weightOf(page) * (1 + shareInTitle(title)),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
