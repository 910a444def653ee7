// What is wrong with how the page looks: texts that contrast with their background by less than 4.5 to 1 (WCAG 2, AA), and
// content that is wider than the window.
(() => {
  const rgb = s => s.match(/[\d.]+/g).map(Number)
  const light = c => {
    const [r, g, b] = c.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b
  }
  const behind = e => {
    for (; e; e = e.parentElement) {
      const c = rgb(getComputedStyle(e).backgroundColor)
      if (c.length === 3 || c[3] > 0) return c.slice(0, 3)
    }
    return [255, 255, 255]
  }
  const wrong = []
  for (const e of document.body.querySelectorAll('*')) {
    if (![...e.childNodes].some(n => n.nodeType === Node.TEXT_NODE && n.data.trim())) continue
    const [a, b] = [light(rgb(getComputedStyle(e).color).slice(0, 3)), light(behind(e))].sort((x, y) => y - x)
    const contrast = (a + 0.05) / (b + 0.05)
    if (contrast < 4.5) wrong.push(`"${e.textContent.trim()}" has a contrast of ${contrast.toFixed(2)}`)
  }
  if (document.documentElement.scrollWidth > innerWidth) wrong.push(`${document.documentElement.scrollWidth} pixels wide, in ${innerWidth}`)
  return wrong
})()
