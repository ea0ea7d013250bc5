// Drives a browser for the tests: a line of JSON in, a line of JSON out.

import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const [executablePath] = process.argv.slice(2);
const browser = await chromium.launch({
  executablePath, args: ["--no-sandbox", "--enable-unsafe-swiftshader", "--disable-dev-shm-usage"],
});
let context, page, problems = [], fetched = 0, waiting = 0;

// Until the view is built, nothing has been on its way for a moment, and what came is painted.
async function idle() {
  await page.waitForSelector(".stage[data-ready]");
  for (let quiet = 0; quiet < 4;) {
    await page.waitForTimeout(15);
    quiet = waiting ? 0 : quiet + 1;
  }
  await page.waitForFunction(() => [...document.querySelectorAll(".heat")].every((heat) => heat.dataset.complete === "true"));
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done()))));
}

const commands = {
  async open({ url, width = 1440, height = 900, theme = "light", offline = false }) {
    await context?.close();
    context = await browser.newContext({ viewport: { width, height }, colorScheme: theme, offline });
    page = await context.newPage();
    page.setDefaultTimeout(90_000); // other tests may keep all cores busy
    problems = [];
    fetched = 0;
    page.on("console", (m) => m.type() === "error" && problems.push(m.text()));
    page.on("pageerror", (error) => problems.push(String(error.stack)));
    page.on("dialog", async (dialog) => {
      problems.push(`dialog: ${dialog.message()}`);
      await dialog.dismiss();
    });
    waiting = 0;
    page.on("request", () => { waiting += 1; });
    page.on("requestfinished", () => { waiting -= 1; });
    page.on("requestfailed", () => { waiting -= 1; });
    page.on("response", async (response) => {
      if (response.url().includes("/data/")) fetched += Number((await response.allHeaders())["content-length"] ?? 0);
    });
    await page.goto(url);
    await page.waitForSelector(".stage[data-ready]");
  },
  // Shows a view and waits until it is built and nothing is being fetched.
  async show({ hash }) {
    await page.evaluate((to) => new Promise((done) => {
      if (location.hash === to) done();
      window.addEventListener("hashchange", () => setTimeout(done), { once: true });
      location.hash = to;
    }), hash);
    await idle();
  },
  text: ({ selector }) => page.locator(selector).first().innerText(),
  texts: ({ selector }) => page.locator(selector).allInnerTexts(),
  count: ({ selector }) => page.locator(selector).count(),
  attribute: ({ selector, name }) => page.locator(selector).first().getAttribute(name),
  click: ({ selector, x, y, modifiers }) => page.locator(selector).first().click({ modifiers, position: x === undefined ? undefined : { x, y } }),
  dblclick: ({ selector }) => page.locator(selector).first().dblclick(),
  await_: ({ selector }) => page.locator(selector).first().waitFor(),
  async drag({ selector, dx = 0, dy = 0 }) {
    const box = await page.locator(selector).first().boundingBox(), x = box.x + box.width / 2, y = box.y + box.height / 2;
    await page.mouse.move(x, y);
    await page.mouse.down();
    await page.mouse.move(x + dx / 2, y + dy / 2);
    await page.mouse.move(x + dx, y + dy);
    await page.mouse.up();
  },
  async download({ selector, path }) {
    const [found] = await Promise.all([page.waitForEvent("download"), page.locator(selector).first().click()]);
    await found.saveAs(path);
    return found.suggestedFilename();
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
  wait: ({ ms }) => page.waitForTimeout(ms),
  settle: idle,
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
