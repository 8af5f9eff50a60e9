/* The order of the search's results. Sphinx gives the same score to every page with the word in its text, and then sorts
   by title. Here, pages that explain come before those that only mention. A match in a title counts 7 at least, in a text 5. */
var Scorer = {
  score: ([page, title, anchor, description, score]) => {
    const explains = /^(docs\/(tutorial|tour|how-it-works|troubleshooting)|(policies|deploy)\/.*)$/.test(page);
    const mentions = /^(CHANGELOG|docs\/decisions|(bench|proxy)\/.*)$/.test(page);
    return score + (explains ? 1 : 0) - (mentions ? 4 : 0);
  },
  objNameMatch: 11, objPartialMatch: 6, objPrio: {0: 15, 1: 5, 2: -5}, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};
