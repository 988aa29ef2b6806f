"""A real Chromium, and a page of the dashboard in it."""

from urllib.parse import urlsplit

from playwright.sync_api import sync_playwright

from scene import PATIENCE, Case, chromium, until

# No sandbox: in containers there is none, and only our own page is opened.
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage"]


class Browsing(Case):
    """Tests with a browser. Every page is watched: errors, and requests to other hosts, fail."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.playwright = sync_playwright().start()
        cls.addClassCleanup(cls.playwright.stop)
        cls.browser = cls.playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        cls.addClassCleanup(cls.browser.close)

    def open(self, url, width=1600, height=1000, scheme="light"):
        """A page of its own, with nothing remembered."""
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
                if said.type in ("error", "warning") else None)
        self.addCleanup(lambda: self.assertEqual((elsewhere, errors), ([], [])))
        page.goto(url)
        wait(page, "document.getElementById('live').textContent === 'Live'")
        # A reload would forget this.
        page.evaluate("window.neverReloaded = true")
        return page

    def assert_never_reloaded(self, page):
        self.assertTrue(page.evaluate("window.neverReloaded === true"), "the page was reloaded")

    def assert_fits(self, page, what):
        """Nothing is wider than the window."""
        wide = page.evaluate("""() => {
            const most = document.documentElement.clientWidth;
            const page = document.documentElement.scrollWidth;
            return page <= most ? null : `${page} of ${most} pixels`;
        }""")
        self.assertIsNone(wide, f"{what} overflows")


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


def picture_of_map(page):
    """The map's pixels."""
    return page.evaluate("document.querySelector('#map canvas').toDataURL()")
