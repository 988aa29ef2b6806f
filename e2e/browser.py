"""A real Chromium, and a page of the dashboard in it."""

import re
from urllib.parse import urlsplit

from playwright.sync_api import sync_playwright

from scene import PATIENCE, Case, chromium, until

# No sandbox: in containers there is none, and only our own page is opened.
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage"]

# In JavaScript: what is shown is how it is.
LIVE = "document.getElementById('live').textContent === 'Live'"

# What the browser itself logs, not the page: of a service that has ended, of one that refuses.
GONE = "Failed to load resource: net::ERR_"
REFUSED = "Failed to load resource: the server responded with a status of 401"


class Browsing(Case):
    """Tests with a browser. Every page is watched: errors, and requests to other hosts, fail."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.playwright = sync_playwright().start()
        cls.addClassCleanup(cls.playwright.stop)
        cls.browser = cls.playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        cls.addClassCleanup(cls.browser.close)

    def open(self, url, width=1600, height=1000, scheme="light", expects=None):
        """A page of its own, with nothing remembered, that is live."""
        page = self.look_at(url, width, height, scheme, expects)
        wait(page, LIVE)
        # A reload would forget this.
        page.evaluate("window.neverReloaded = true")
        return page

    def look_at(self, url, width=1600, height=1000, scheme="light", expects=None):
        """A page of its own; of what it logs only what matches `expects` is no error."""
        context = self.browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme,
        )
        context.set_default_timeout(PATIENCE * 1000)
        self.addCleanup(context.close)
        page = context.new_page()
        host, elsewhere, errors = urlsplit(url).netloc, [], []
        page.on("request", lambda request: None if urlsplit(request.url).netloc == host
                else elsewhere.append(request.url))
        page.on("websocket", lambda socket: elsewhere.append(socket.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda said: errors.append(said.text)
                if said.type in ("error", "warning")
                and not (expects and re.search(expects, said.text)) else None)
        self.addCleanup(lambda: self.assertEqual((elsewhere, errors), ([], [])))
        page.goto(url)
        return page

    def assert_never_reloaded(self, page):
        self.assertTrue(page.evaluate("window.neverReloaded === true"), "the page was reloaded")

    def assert_fits(self, page, what):
        """Nothing is wider than the window, and no part of the page than its frame."""
        wide = page.evaluate("""() => {
            const parts = document.querySelectorAll('html, .card, .tile, .plot, aside, dialog');
            return [...parts]
                .filter(({ scrollWidth, clientWidth }) => scrollWidth > clientWidth)
                .map(({ tagName, id, className, scrollWidth, clientWidth }) =>
                    `${tagName}#${id}.${className}: ${scrollWidth} of ${clientWidth} pixels`);
        }""")
        self.assertEqual(wide, [], f"{what} overflows")

    def assert_inside(self, page, what, name):
        """This element is in the window, from its left to its right edge."""
        inside = page.evaluate("""what => {
            const { left, right } = document.querySelector(what).getBoundingClientRect();
            return left >= 0 && right <= innerWidth && left < right;
        }""", what)
        self.assertTrue(inside, f"{name} is inside of the window")


def wait(page, wanted, arg=None):
    """Waits until JavaScript finds it so. (The page's own policy forbids to poll within it.)"""
    until(wanted, lambda: page.evaluate(wanted, arg))


def owners(page):
    """Who has which partition, as the table shows it."""
    return page.evaluate("""() => Object.fromEntries(
        [...document.querySelectorAll('#partitions tbody tr[data-at]')].map((row) => [
            row.querySelector('th .name').textContent,
            row.querySelector('td .name')?.textContent ?? null,
        ]))""")


# Runs in the page: partitions of each worker, as the table of workers shows them.
LOADS = """() => Object.fromEntries(
    [...document.querySelectorAll('#workers tbody tr')].map((row) => [
        row.querySelector('.name').textContent,
        Number(row.querySelector('td.load span').textContent.split(' ')[0]),
    ]))"""


def wait_for_loads(page, wanted):
    """Waits until the table of workers is so: an expression in JavaScript about `loads`."""
    wait(page, f"() => {{ const loads = ({LOADS})(); return {wanted}; }}")


# Runs in the page: who has which partition by the colours on the canvas, in the order of ids; nobody
# where it is another colour.
PAINTED = """async () => {
    const [{ layOut, placeOf }, { COLOURS, channels, mix }] =
        await Promise.all([import('/layout.js'), import('/palette.js')]);
    const style = getComputedStyle(document.documentElement);
    const card = style.getPropertyValue('--card').trim();
    const dark = matchMedia('(prefers-color-scheme: dark)').matches;
    const looks = [...document.querySelectorAll('#workers tbody tr')].map((row) => {
        const [, slot] = /\\bc(\\d)\\b/.exec(row.querySelector('.tag').className);
        const solid = COLOURS[dark ? 'dark' : 'light'][slot];
        const colours = [solid, mix(card, solid, 0.24)].map(channels);
        return { worker: row.querySelector('.name').textContent, colours };
    });
    const rows = [...document.querySelectorAll('#partitions tbody tr[data-at]')];
    const box = document.querySelector('#map .map-box');
    const canvas = box.querySelector('canvas');
    const ratio = canvas.width / parseFloat(canvas.style.width);
    const copy = new OffscreenCanvas(canvas.width, canvas.height);
    const context = copy.getContext('2d', { willReadFrequently: true });
    context.drawImage(canvas, 0, 0);
    const space = { width: box.clientWidth, label: 0, lowEnough: Infinity };
    const layout = layOut([rows.length], space);
    return Object.fromEntries(rows.map((row, cell) => {
        // Beside the sign of a status, the id, and a frame.
        const { x, y } = placeOf(layout, cell);
        const at = [x + 6, y + 5].map((place) => Math.round(place * ratio));
        const pixel = context.getImageData(...at, 1, 1).data;
        const isIt = (colour) => colour.every((part, at) => Math.abs(part - pixel[at]) <= 2);
        const owner = looks.find(({ colours }) => colours.some(isIt));
        return [row.querySelector('th .name').textContent, owner?.worker ?? null];
    }));
}"""


def painted(page):
    """Who has which partition as the map (in the order of ids) has it, once everybody has an owner
    and the table says the same."""
    def look():
        shown = page.evaluate(PAINTED)
        return shown if None not in shown.values() and shown == owners(page) else None
    return until("the map is painted as the table says", look)
