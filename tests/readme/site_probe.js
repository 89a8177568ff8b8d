// Returns a list of the faults of the article on the page: elements that are wider than the window or need horizontal
// scrolling, except code and pictures (on a desktop, also tables), cells that are too narrow for their text, and text that
// does not contrast with its background.
(contrasts => {
  const found = new Set(), root = document.documentElement;
  if (root.scrollWidth > innerWidth) found.add(`the page is ${root.scrollWidth} px wide of ${innerWidth}`);
  const article = document.querySelector('article') || document.body;
  const named = e => `${e.tagName.toLowerCase()} "${e.textContent.trim().slice(0, 40)}"`;
  const scrolls = e => ['auto', 'scroll'].includes(getComputedStyle(e).overflowX);
  const box = e => { for (let x = e; x && x !== article; x = x.parentElement) if (scrolls(x)) return x; return null; };
  const may_scroll = e => e.matches('pre, p:has(> img)') || (innerWidth > 700 && e.matches('.table-wrapper'));

  for (const e of article.querySelectorAll('*')) {
    if (scrolls(e) && e.scrollWidth > e.clientWidth + 1 && !may_scroll(e)) found.add(`must be scrolled: ${named(e)}`);
    if (e.getClientRects().length && e.getBoundingClientRect().right > innerWidth + 1 && !box(e)) found.add(`cut: ${named(e)}`);
    if (e.matches('td, dd') && !box(e) && e.clientWidth && e.clientWidth < 60 && e.textContent.length > 60)
      found.add(`${e.clientWidth} px for ${named(e)}`);
  }
  if (!contrasts) return [...found];

  const texts = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || element.closest('script, style, svg, .headerlink, .visually-hidden, button')) continue;
    const contrast = contrast_of(element);
    if (contrast < (element.closest('pre') ? 3 : 4.5)) found.add(`contrast ${contrast.toFixed(2)} of ${named(element)}`);
  }
  return [...found];
})
