"""Who may look and who may operate: tokens, in a real Chromium."""

import unittest

from browser import GONE, LIVE, REFUSED, Browsing, wait
from scene import Served

OPERATOR, READER, OTHER = "the-operators-token", "the-token-of-a-reader", "another-operators-token"

FIELD = "dialog[open] input[type=password]"
ROLE = "document.getElementById('role').textContent"
# In JavaScript: whether anything is offered that only operators may do. The page of a group has such.
OFFERED = "[...document.querySelectorAll('.operate')].some((one) => one.checkVisibility())"


def enter(page, token):
    """Types a token into the dialogue that asks for one, and waits until that is gone."""
    asked = page.wait_for_selector(FIELD)
    asked.focus()
    page.keyboard.type(token)
    page.keyboard.press("Enter")
    asked.wait_for_element_state("hidden")


class Login(Browsing):
    def setUp(self):
        super().setUp()
        self.served = self.serve(token=OPERATOR, read_token=READER)
        self.served.make_group("g", "t", 4)
        self.url = f"{self.served.url}/#/groups/g"

    def assert_role(self, page, role):
        """The page becomes live in this role, and offers what that allows."""
        wait(page, LIVE)
        wait(page, f"{ROLE} === '{role}'")
        wait(page, "document.querySelector('#view .group').checkVisibility()")
        self.assertGreater(page.locator(".operate").count(), 0)
        self.assertEqual(page.evaluate(OFFERED), role == "operator")

    def assert_shows_nothing(self, page):
        """Nothing is told of the group, nor offered."""
        self.assertFalse(page.evaluate(OFFERED))
        self.assertEqual(page.evaluate(ROLE), "")
        self.assertTrue(page.locator("#view .group").is_hidden())

    def forget(self, page):
        page.get_by_role("button", name="Forget the token").click()
        page.wait_for_selector(FIELD)
        self.assertEqual(page.evaluate("sessionStorage.length"), 0)
        self.assertTrue(page.locator("#forget").is_hidden())
        self.assert_shows_nothing(page)

    def test_a_wrong_token_is_asked_for_again_and_the_right_one_is_kept_for_the_tab(self):
        page = self.look_at(self.url, expects=REFUSED)
        page.wait_for_selector(FIELD)
        self.assert_shows_nothing(page)
        for wrong in ("wrong", f"{READER}x"):
            enter(page, wrong)
            page.wait_for_selector(FIELD)
            self.assert_shows_nothing(page)
        # Who does not have one can look for it first.
        page.keyboard.press("Escape")
        page.wait_for_selector("dialog", state="detached")
        page.get_by_role("button", name="Enter a token").click()
        enter(page, READER)
        self.assert_role(page, "read only")
        page.reload()
        self.assert_role(page, "read only")
        # Another tab, opened by itself, knows nothing of it.
        other = self.look_at(self.url, expects=REFUSED)
        other.wait_for_selector(FIELD)

    def test_a_reader_is_offered_nothing_and_an_operator_everything(self):
        page = self.look_at(self.url, expects=REFUSED)
        enter(page, READER)
        self.assert_role(page, "read only")
        # What is not offered, the service would refuse, too.
        status, refused = self.served.call("POST", "/v1/groups/g/requests", {
            "request": {"kind": "rebalance"}, "why": "a test"}, token=READER)
        self.assertEqual((status, refused["error"]["code"]), (403, "forbidden"))
        self.forget(page)
        enter(page, OPERATOR)
        self.assert_role(page, "operator")
        self.forget(page)
        enter(page, READER)
        self.assert_role(page, "read only")

    def test_a_token_that_is_taken_back_is_asked_for_while_the_page_is_open(self):
        page = self.look_at(self.url, expects=f"{REFUSED}|{GONE}")
        enter(page, OPERATOR)
        self.assert_role(page, "operator")
        page.evaluate("window.neverReloaded = true")
        self.served.end()
        address = self.served.url.removeprefix("http://")
        again = Served(self.folder, token=OTHER, read_token=READER, listen=address)
        self.addCleanup(again.end)
        page.wait_for_selector(FIELD)
        self.assertFalse(page.evaluate(OFFERED), "nobody knows what this one may do")
        enter(page, OTHER)
        self.assert_role(page, "operator")
        self.assert_never_reloaded(page)


if __name__ == "__main__":
    unittest.main(verbosity=2)
