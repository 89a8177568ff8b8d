// Searches for faults in its page, and writes them into the page around the frame: a line with the width and the scheme, then a
// line for each finding.
(() => {
  const root = document.documentElement, found = [];
  const path = e => e.tagName.toLowerCase() + (e.className && e.className.baseVal === undefined ? '.' + e.className : '');
  if (root.scrollWidth > innerWidth) found.push(`wider than the window: ${root.scrollWidth} of ${innerWidth}`);
  for (const card of document.querySelectorAll('.card, .facts div')) {
    if (card.scrollWidth > card.clientWidth) found.push(`wider than its card: ${card.innerText.slice(0, 20)}`);
  }

  let level = 0;
  for (const heading of document.querySelectorAll('h1, h2, h3, h4, h5, h6')) {
    const next = +heading.tagName[1];
    if (next > level + 1) found.push(`heading ${heading.tagName} after H${level}: ${heading.textContent}`);
    level = next;
  }
  for (const svg of document.querySelectorAll('svg')) {
    if (svg.getAttribute('role') !== 'img' || !svg.getAttribute('aria-label')) found.push('a picture has no name');
  }

  const texts = document.createTreeWalker(document.querySelector('main').parentElement, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || element.closest('script, svg')) continue;
    const style = getComputedStyle(element);
    if (parseFloat(style.fontSize) < 14) found.push(`${style.fontSize} text in ${path(element)}`);
    const contrast = contrast_of(element);
    if (contrast < 4.5) found.push(`contrast ${contrast.toFixed(2)} of text in ${path(element)}`);
  }

  for (const entry of performance.getEntriesByType('resource')) found.push(`loaded: ${entry.name}`);
  const scheme = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
  const out = parent.document.createElement('pre');
  out.id = 'findings';
  out.textContent = [`width ${innerWidth}, ${scheme}`, ...found].join('\n');
  parent.document.body.append(out);
})();
