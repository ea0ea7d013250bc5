// Drives a browser for the tests: a line of JSON in, a line of JSON out.

import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const [executablePath] = process.argv.slice(2);
const browser = await chromium.launch({
  executablePath, args: ["--no-sandbox", "--enable-unsafe-swiftshader", "--disable-dev-shm-usage"],
});
let context, page, opened, problems = [], fetched = 0;

// In the page, before its own scripts: counts answers and short pauses that it still waits for.
function watch() {
  const PAUSE_MS = 1000, timers = new Set(), { setTimeout: later, clearTimeout: never, fetch: get } = window;
  let nAnswers = 0;
  const counted = (promise) => {
    nAnswers += 1;
    const done = () => { nAnswers -= 1; };
    promise.then(done, done);
    return promise;
  };
  window.fetch = (...given) => counted(get.apply(window, given));
  const whole = Response.prototype.arrayBuffer;
  Response.prototype.arrayBuffer = function arrayBuffer() { return counted(whole.call(this)); };
  window.setTimeout = (act, ms = 0, ...given) => {
    const id = later(() => { timers.delete(id); act(...given); }, ms);
    if (ms <= PAUSE_MS) timers.add(id);
    return id;
  };
  window.clearTimeout = (id) => { timers.delete(id); never(id); };
  window.isWaiting = () => nAnswers > 0 || timers.size > 0;
}

// Until the view is built, nothing is on its way or about to happen, and what came is painted.
function settled(hash) {
  const isStill = () => !isWaiting() && document.querySelector(".stage[data-ready]")
    && [...document.querySelectorAll(".heat")].every((heat) => heat.dataset.complete === "true");
  return new Promise((done, fail) => {
    const begin = performance.now();
    let nStill = 0;
    const look = () => {
      nStill = isStill() ? nStill + 1 : 0;
      if (nStill === 3) done();
      else if (performance.now() - begin > 90_000) fail(new Error("the page does not come to rest"));
      else requestAnimationFrame(look);
    };
    if (hash === undefined || hash === location.hash) return look();
    window.addEventListener("hashchange", look, { once: true });
    location.hash = hash;
  });
}

// A loaded page without memory of what was done to it; false if only loading it again does that.
function startAgain() {
  const isPlain = location.pathname + location.search === "/" && !document.documentElement.dataset.theme;
  if (!isPlain || document.querySelector("dialog[open]")) return false;
  localStorage.clear();
  document.activeElement?.blur();
  return true;
}

async function newPage(offline) {
  await context?.close();
  context = await browser.newContext({ offline });
  await context.addInitScript(watch);
  page = await context.newPage();
  page.setDefaultTimeout(90_000); // other tests may keep all cores busy
  page.on("console", (m) => m.type() === "error" && problems.push(m.text()));
  page.on("pageerror", (error) => problems.push(String(error.stack)));
  page.on("dialog", async (dialog) => {
    problems.push(`dialog: ${dialog.message()}`);
    await dialog.dismiss();
  });
  page.on("response", (response) => {
    if (response.url().includes("/data/")) fetched += Number(response.headers()["content-length"] ?? 0);
  });
}

const commands = {
  // A page is opened again without loading it, unless something differs or all must be fetched again.
  async open({ url, width = 1440, height = 900, theme = "light", offline = false, fresh = false }) {
    const asked = JSON.stringify({ url, width, height, theme, offline });
    const isThere = !fresh && asked === opened && !problems.length && await page.evaluate(startAgain);
    if (fresh || !page || JSON.parse(opened).offline !== offline) await newPage(offline);
    else if (!isThere) {
      await page.evaluate(() => location.protocol === "http:" && localStorage.clear());
      await page.goto("about:blank");
    }
    problems = [];
    fetched = 0;
    if (isThere) return commands.show({ hash: "#/summary" });
    opened = asked;
    await page.setViewportSize({ width, height });
    await page.emulateMedia({ colorScheme: theme });
    await page.goto(url);
    await page.waitForSelector(".stage[data-ready]");
  },
  // Shows a view and waits until it is built and nothing is being fetched.
  show: ({ hash }) => page.evaluate(settled, hash),
  text: ({ selector }) => page.locator(selector).first().innerText(),
  texts: ({ selector }) => page.locator(selector).allInnerTexts(),
  count: ({ selector }) => page.locator(selector).count(),
  attribute: ({ selector, name }) => page.locator(selector).first().getAttribute(name),
  click: ({ selector, x, y, modifiers }) => page.locator(selector).first().click({ modifiers, position: x === undefined ? undefined : { x, y } }),
  dblclick: ({ selector }) => page.locator(selector).first().dblclick(),
  await_: ({ selector }) => page.locator(selector).first().waitFor(),
  // From the middle of an element, or from a place in it, perhaps with a key held.
  async drag({ selector, dx = 0, dy = 0, x: left, y: top, key }) {
    const target = page.locator(selector).first();
    await target.scrollIntoViewIfNeeded();
    const box = await target.boundingBox(), x = box.x + (left ?? box.width / 2), y = box.y + (top ?? box.height / 2);
    await page.mouse.move(x, y);
    if (key) await page.keyboard.down(key);
    await page.mouse.down();
    await page.mouse.move(x + dx / 2, y + dy / 2);
    await page.mouse.move(x + dx, y + dy);
    await page.mouse.up();
    if (key) await page.keyboard.up(key);
  },
  upload: ({ selector, path }) => page.locator(selector).first().setInputFiles(path),
  // A file that is dropped on the page.
  async drop({ name, base64 }) {
    await page.evaluate(([fileName, text]) => {
      const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0)), dataTransfer = new DataTransfer();
      dataTransfer.items.add(new File([bytes], fileName));
      for (const kind of ["dragover", "drop"]) document.body.dispatchEvent(new DragEvent(kind, { bubbles: true, cancelable: true, dataTransfer }));
    }, [name, base64]);
  },
  async download({ selector, path }) {
    const [download] = await Promise.all([page.waitForEvent("download"), page.locator(selector).first().click()]);
    await download.saveAs(path);
    return download.suggestedFilename();
  },
  fill: ({ selector, text }) => page.locator(selector).first().fill(text),
  choose: ({ selector, value }) => page.locator(selector).first().selectOption(value),
  focus: ({ selector }) => page.locator(selector).first().focus(),
  // Turns the wheel over an element, perhaps with a key held, as a hand does it.
  async wheel({ selector, dy, key }) {
    await page.locator(selector).first().hover();
    if (key) await page.keyboard.down(key);
    await page.mouse.wheel(0, dy);
    if (key) await page.keyboard.up(key);
  },
  hover: ({ selector, x, y }) => page.locator(selector).first().hover({ position: x === undefined ? undefined : { x, y } }),
  press: ({ key }) => page.keyboard.press(key),
  hash: () => page.evaluate(() => location.hash),
  evaluate: ({ code }) => page.evaluate(code),
  // The page's policy forbids evaluating text inside it, as waitForFunction does.
  async until({ code, seconds = 90 }) {
    for (const end = Date.now() + 1000 * seconds; !await page.evaluate(code);) {
      if (Date.now() > end) throw new Error(`never true: ${code}`);
      await page.waitForTimeout(15);
    }
  },
  wait: ({ ms }) => page.waitForTimeout(ms),
  settle: () => page.evaluate(settled),
  screenshot: async ({ path, selector }) => {
    await (selector ? page.locator(selector).first() : page).screenshot({ path });
  },
  fetched: ({ reset }) => {
    const n = fetched;
    if (reset) fetched = 0;
    return n;
  },
  problems: () => problems,
  // From navigation to a painted view, in milliseconds; a fresh page each time.
  async paint({ url, hash }) {
    const fresh = await context.newPage();
    await fresh.goto(url.split("/?")[0] + `/#${hash}`, { waitUntil: "commit" });
    const ms = await fresh.evaluate(() => new Promise((done) => {
      const look = () => {
        const isReady = document.querySelector(".stage[data-ready]");
        const isSharp = [...document.querySelectorAll(".heat")].every((heat) => heat.dataset.complete);
        if (isReady && isSharp) requestAnimationFrame(() => setTimeout(() => done(performance.now())));
        else setTimeout(look, 4);
      };
      look();
    }));
    await fresh.close();
    return ms;
  },
  // Zooms and pans for a while; frames per second, and the longest frame.
  async frames({ selector, seconds = 3 }) {
    const box = await page.locator(selector).first().boundingBox();
    await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
    const counting = page.evaluate((ms) => new Promise((done) => {
      const times = [performance.now()];
      const tick = (now) => {
        times.push(now);
        if (now - times[0] < ms) requestAnimationFrame(tick);
        else done({ n: times.length - 1, ms: now - times[0], longest: Math.max(...times.slice(2).map((t, i) => t - times[i + 1])) });
      };
      requestAnimationFrame(tick);
    }), seconds * 1000);
    await page.evaluate(([s, ms]) => {
      // One gesture per frame, as a hand on a wheel and a pad makes them.
      const canvas = document.querySelector(s), begin = performance.now(), rect = canvas.getBoundingClientRect();
      const gesture = () => {
        const t = (performance.now() - begin) / ms;
        if (t >= 1) return;
        const isPan = Math.floor(t * 8) % 2;
        canvas.dispatchEvent(new WheelEvent("wheel", {
          deltaY: isPan ? 0 : t < 0.5 ? -14 : 14, deltaX: isPan ? 9 : 0, clientX: rect.left + rect.width * 0.6, clientY: rect.top + 100, ctrlKey: !isPan, bubbles: true, cancelable: true,
        }));
        requestAnimationFrame(gesture);
      };
      requestAnimationFrame(gesture);
    }, [selector, seconds * 1000]);
    return counting;
  },
  async quit() {
    await browser.close();
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { command, ...given } = JSON.parse(line);
  try {
    const result = await commands[command](given);
    console.log(JSON.stringify({ result: result ?? null }));
  } catch (error) {
    console.log(JSON.stringify({ error: String(error.message) }));
  }
  if (command === "quit") process.exit(0);
}
