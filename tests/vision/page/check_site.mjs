// Opens pages of the built site from its folder, and prints what is wrong with each as a line of JSON.
// node check_site.mjs CHROMIUM SITE PAGE …; tools/check_site.py does.

import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const [executablePath, site, ...pages] = process.argv.slice(2);
const PHONE = 390, DESK = 1280;

// In the page: texts whose contrast with what is behind them is below WCAG 2's AA.
function pale() {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const seen = new Map(); // a page has thousands of texts and a dozen colours
  const rgba = (colour) => {
    if (!seen.has(colour)) {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = colour;
      canvas.fillRect(0, 0, 1, 1);
      seen.set(colour, [...canvas.getImageData(0, 0, 1, 1).data]);
    }
    return seen.get(colour);
  };
  const over = (top, below) => top.slice(0, 3).map((v, i) => (v * top[3] + below[i] * (255 - top[3])) / 255);
  const ground = (element) => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) {
      const style = getComputedStyle(e);
      if (style.backgroundImage !== "none") return null; // a picture: unknown
      layers.push(rgba(style.backgroundColor));
      if (layers.at(-1)[3] === 255) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const luminance = (c) => c.map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const looked = new Set(), result = new Map(), walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || looked.has(element)) continue;
    looked.add(element);
    const box = element.getBoundingClientRect();
    if (!box.width || !box.height || !element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    const style = getComputedStyle(element), behind = ground(element);
    if (!behind) continue;
    const [low, high] = [luminance(over(rgba(style.color), behind)), luminance(behind)].sort((a, b) => a - b);
    const ratio = (high + 0.05) / (low + 0.05), size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (isLarge ? 3 : 4.5)) result.set(`${element.localName}.${element.className}`, `${ratio.toFixed(1)}:1 ${walker.currentNode.data.trim().slice(0, 30)}`);
  }
  return [...result].slice(0, 5).map(([where, what]) => `contrast of ${where}: ${what}`);
}

// In the page: what is wider than the window and cannot be scrolled by itself.
function wide() {
  const root = document.documentElement;
  return root.scrollWidth > innerWidth + 1 ? [`${root.scrollWidth} px wide in a window of ${innerWidth}`] : [];
}

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage", "--allow-file-access-from-files"] });
const context = await browser.newContext({ offline: true });
const page = await context.newPage();
page.setDefaultTimeout(60_000);
let problems = [];
page.on("console", (m) => m.type() === "error" && problems.push(`console: ${m.text()}`));
page.on("pageerror", (error) => problems.push(`error: ${error.message}`));
page.on("requestfailed", (request) => problems.push(`not loaded: ${request.url()}`));

for (const name of pages) {
  problems = [];
  const [file, hash = ""] = name.split("#"), isReport = file.startsWith("reports/");
  for (const [width, colorScheme] of [[PHONE, "light"], [DESK, "dark"]]) {
    await page.setViewportSize({ width, height: 800 });
    await page.emulateMedia({ colorScheme });
    await page.goto("about:blank");
    await page.goto(`${pathToFileURL(`${site}/${file}`)}${hash ? `#${hash}` : ""}`);
    if (isReport) await page.waitForSelector(".stage[data-ready]");
    const wrong = [...await page.evaluate(wide), ...(isReport ? [] : await page.evaluate(pale))];
    problems.push(...wrong.map((text) => `${width} px, ${colorScheme}: ${text}`));
  }
  console.log(JSON.stringify({ page: name, problems: [...new Set(problems)] }));
}

// Search works without a network: a word of the docs has results.
await page.setViewportSize({ width: DESK, height: 800 });
await page.goto(`${pathToFileURL(`${site}/index.html`)}`).catch(() => {});
await page.fill("input.md-search__input", "liveness");
const hasResult = await page.waitForSelector(".md-search-result__item", { timeout: 30_000 }).then(() => true, () => false);
console.log(JSON.stringify({ page: "search", problems: hasResult ? [] : ["no result for \"liveness\""] }));
await browser.close();
