// Returns what is wrong with the article that the page shows, a line each: what is wider than the window or needs
// sideways scrolling outside of code and pictures (on a desk, of tables, too), and text that does not stand out from what is behind it.
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

  // Luminance and contrast as WCAG 2 defines them.
  const rgb = colour => colour.match(/[\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const colour = rgb(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const texts = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || element.closest('script, style, svg, .headerlink, .visually-hidden, button')) continue;
    const [a, b] = [luminance(rgb(getComputedStyle(element).color)), luminance(behind(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < (element.closest('pre') ? 3 : 4.5)) found.add(`contrast ${contrast.toFixed(2)} of ${named(element)}`);
  }
  return [...found];
})
