"""The dashboard in a real Chromium, against the real program."""

import json
import os
import signal
import subprocess
import time
import unittest
from pathlib import Path

from browser import GONE, LIVE, Browsing, owners, painted, wait, wait_for_loads
from scene import NONCE, PARTITIONS, WORKERS, foreign, group_of, parti, until

SHOTS = os.environ.get("SCREENSHOTS")

# Were it ever markup, it would run.
HOSTILE = '<img src=x onerror="window.hacked=1">'


def shoot(page, name):
    """Keeps a picture, for people who want to look."""
    if SHOTS:
        Path(SHOTS).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=f"{SHOTS}/{name}.png")


def living(page):
    """The workers whose session is not over, as the table shows them."""
    return set(page.evaluate("""() =>
        [...document.querySelectorAll('#workers tbody tr')]
            .filter((row) => !/evicted|left/.test(row.cells[1].textContent))
            .map((row) => row.querySelector('.name').textContent)"""))


class Demo(Browsing):
    """`parti demo --ui`, looked at from its first to its last second."""

    def demo(self):
        demo = self.start(parti(), "demo", "--ui", "--partitions", "12", "--rate", "100",
                          "-o", "json")
        return demo, demo.says(r"dashboard (\S+)")[1]

    def audit(self, demo):
        """Ends the demo as ctrl-C does; every message is accounted for."""
        demo.signal(signal.SIGINT)
        self.assertEqual(demo.wait(), 0, demo.err)
        audit = json.loads("\n".join(demo.out))
        self.assertEqual((audit["lost"], audit["out_of_order"]), (0, 0), audit)
        self.assertGreater(audit["produced"], 0)
        return audit

    def test_a_kill_is_seen_and_a_drain_by_click_moves_everything(self):
        demo, url = self.demo()
        page = self.open(url, expects=GONE)
        wait_for_loads(page, "Object.values(loads).reduce((a, b) => a + b, 0) === 12")
        page.get_by_label("By id", exact=True).check()
        painted(page)
        # Somebody joins, somebody leaves, somebody is killed; the page follows by itself.
        killed = demo.says(r"(worker-\d+) is killed")[1]
        # Its name may be somebody else's by then: on a busy machine a worker that lives can lose its
        # session, too, and takes the first name that is free.
        wait(page, "text => document.getElementById('events').textContent.includes(text)",
             f"{killed} lost")
        wait_for_loads(page, "Object.values(loads).reduce((a, b) => a + b, 0) === 12")
        # Every cell has the colour of somebody who lives: what the dead one had, too.
        until("the map is of the living", lambda: set(painted(page).values()) <= living(page))
        # The timeline tells why, and how much was placed anew.
        wait(page, "text => document.getElementById('rebalances').textContent.includes(text)",
             f"{killed} lost — ")
        self.assert_never_reloaded(page)
        shoot(page, "demo-after-the-kill")

        before = painted(page)
        victim = next(owner for owner in before.values() if owner != killed)
        asked = []
        page.on("request", lambda request: asked.append(request.url)
                if request.method == "POST" else None)
        page.get_by_role("button", name=victim).click()
        page.get_by_role("button", name="Drain…").click()
        shoot(page, "demo-drain-dialog")
        # Nothing is done by opening the dialogue, nor by cancelling it, nor without a reason.
        page.get_by_role("button", name="Cancel").click()
        page.wait_for_selector("dialog", state="detached")
        page.get_by_role("button", name="Drain…").click()
        confirm = page.get_by_role("button", name=f"Drain {victim}", exact=True)
        confirm.click()
        self.assertEqual(asked, [])
        page.get_by_label("Reason").fill("a test")
        confirm.click()
        page.wait_for_selector("dialog", state="detached")
        self.assertEqual(len(asked), 1, asked)
        wait_for_loads(page, f"loads['{victim}'] === 0 && "
                             "Object.values(loads).reduce((a, b) => a + b, 0) === 12")
        page.wait_for_selector("#notices .notice.done")
        # On the map, too: each of its cells has the colour of another one.
        after = until("others have everything", lambda: (
            now := painted(page)) and victim not in now.values() and now)
        moved = [partition for partition, owner in before.items() if owner == victim]
        self.assertTrue(moved)
        self.assertTrue(all(after[partition] in living(page) for partition in moved), after)
        self.assert_never_reloaded(page)
        self.audit(demo)
        # The page says so itself: nobody has to reload it to find out.
        wait(page, f"!({LIVE})")

    def test_the_keyboard_alone_does_everything(self):
        demo, url = self.demo()
        page = self.open(url, expects=GONE)
        # After that nobody comes or goes by itself: two are left.
        killed = demo.says(r"(worker-\d+) is killed")[1]
        wait(page, "text => document.getElementById('events').textContent.includes(text)",
             f"{killed} lost")
        all_owned = "Object.values(loads).reduce((a, b) => a + b, 0) === 12"
        all_served = "document.querySelectorAll('#partitions td.status.served').length === 12"
        wait_for_loads(page, all_owned)
        victim = next(owner for owner in owners(page).values() if owner not in (None, killed))
        keys = Keys(self, page)

        keys.press_at(victim)
        page.wait_for_selector("aside.inspector:not([hidden])")
        keys.press_at("Drain…")
        page.wait_for_selector("dialog[open]")
        # A dialogue keeps the focus; Escape leaves it, and Enter comes back.
        page.keyboard.press("Escape")
        page.wait_for_selector("dialog", state="detached")
        self.assertEqual(keys.label(), "Drain…", "the focus comes back to where it was")
        page.keyboard.press("Enter")
        keys.confirm("no mouse today", f"Drain {victim}")
        wait_for_loads(page, f"loads['{victim}'] === 0 && {all_owned}")

        # The map is for the keyboard, too: Enter on a cell shows its partition.
        keys.tab_to(MAP)
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        paused = keys.partition()
        keys.press_at("Pause…")
        keys.confirm("a rest", f"Pause partition {paused}")
        self.wait_for_lag(page, paused)
        # Its button is gone; the focus is still in the panel.
        keys.press_at("Resume…")
        keys.confirm("rested", f"Resume partition {paused}")
        wait(page, all_served)
        self.assertIsNotNone(owners(page)[paused])

        keys.press_at(victim)
        keys.press_at("Undrain…")
        keys.confirm("back to work", f"Undrain {victim}")
        wait_for_loads(page, f"loads['{victim}'] > 0 && {all_owned}")
        wait(page, all_served)

        keys.tab_to(MAP)
        page.keyboard.press("Home")
        page.keyboard.press("Enter")
        moved = keys.partition()
        owner = owners(page)[moved]
        other = next(worker for worker in owners(page).values() if worker != owner)
        keys.press_at("Move…")
        page.wait_for_selector("dialog[open]")
        keys.choose("To", other)
        keys.confirm("over there", f"Move partition {moved}")
        until("it has moved", lambda: owners(page)[moved] == other)
        wait(page, """worker => [...document.querySelectorAll('aside.inspector dl > div')]
            .some((row) => row.textContent === `Pinned to${worker}`)""", other)

        # What is paused waits, and is not lost.
        keys.press_at("Pause…")
        keys.confirm("until the end", f"Pause partition {moved}")
        self.wait_for_lag(page, moved)
        self.assertGreater(self.audit(demo)["waiting"], 0)

    def wait_for_lag(self, page, partition):
        """Waits until this one, and no other, is paused and has messages that wait."""
        wait(page, """partition => {
            const paused = [...document.querySelectorAll('#partitions tr:has(td.status.paused)')];
            return paused.length === 1 && Number(paused[0].cells[3].textContent) > 0
                && paused[0].querySelector('th .name').textContent === partition;
        }""", partition)


# How the label of the map ends.
MAP = "The table of partitions tells the same."


class Keys:
    """A page by keyboard: no mouse, and no script that moves the focus."""

    def __init__(self, case, page):
        self.case, self.page = case, page

    def label(self):
        """What the control that has the focus is called."""
        return self.page.evaluate("""() => {
            const at = document.activeElement;
            if (at === document.body) return '';
            const named = at.labels?.[0]?.textContent ?? at.getAttribute('aria-label');
            return (named ?? at.textContent ?? '').trim();
        }""")

    def tab_to(self, what, most=120):
        """Goes from control to control until one's label ends like this."""
        for _ in range(most):
            self.page.keyboard.press("Tab")
            if self.label().endswith(what):
                shows = self.page.evaluate("document.activeElement.matches(':focus-visible')")
                self.case.assertTrue(shows, f"the focus on {what} shows")
                return
        self.case.fail(f"Tab does not reach {what}")

    def press_at(self, what):
        self.tab_to(what)
        self.page.keyboard.press("Enter")

    def go_to(self, what):
        """As `tab_to`, from where the focus may be already."""
        if not self.label().endswith(what):
            self.tab_to(what)

    def choose(self, field, option):
        self.go_to(field)
        self.page.keyboard.type(option)
        chosen = self.page.evaluate("document.activeElement.value")
        self.case.assertEqual(chosen, option)

    def confirm(self, reason, button):
        """Gives a reason in the dialogue that opens, confirms it, and waits for the effect."""
        self.page.wait_for_selector("dialog[open]")
        self.go_to("Reason")
        self.page.keyboard.type(reason)
        self.press_at(button)
        self.page.wait_for_selector("dialog", state="detached")

    def partition(self):
        """Which one the panel shows."""
        title = "document.getElementById('inspector-title')"
        wait(self.page, f"{title}.textContent.startsWith('Partition ')")
        return self.page.evaluate(f"{title}.querySelector('.name').textContent")


# An operator's request, in the store.
REQUEST = "requests/g/00000000000000aa"


class Shapes(Browsing):
    """Any name, any width, light and dark."""

    def group(self):
        """A group with hostile names, as a store may hold them whoever wrote it."""
        served = self.serve()
        served.make_group("g", "t", 4)
        now = int(time.time() * 1000)
        nonce = "0000000000000001"
        partition = {
            "v": 1, "epoch": 3, "owner": "worker-7", "incarnation": 17, "start": 0, "offset": 41,
            "next_offset": 42, "begun": None, "nonce": nonce, "claimed_at": now, "updated_at": now,
        }
        worker = {
            "v": 1, "incarnation": 17, "beat": 2, "status": "live", "state": 3, "term": 1,
            "released": 0, "applied": 1, "ready": {"version": 0, "partitions": []},
            "blocked_by": [], "load": 2, "degraded": HOSTILE, "partitions": "83553109c550492b",
            "renewed_at": now, "nonce": nonce,
        }
        event = {"v": 1, "at": now, "worker": "worker-7", "kind": "plan", "text": HOSTILE,
                 "nonce": nonce}
        self.request = {"v": 1, "request": {"kind": "drain", "worker": "worker-7"}, "by": HOSTILE,
                        "why": "a new kernel", "at": now, "outcome": {"state": "open"},
                        "nonce": nonce}
        long = "a-name-that-never-comes-to-an-end" * 5
        self.worker = worker | {"degraded": None}
        served.write({
            f"partitions/g/{foreign(HOSTILE)}": partition,
            f"partitions/g/{long}": partition,
            f"partitions/g/{foreign('</script>')}": {"v": 1, "broken": HOSTILE},
            f"workers/g/{foreign(HOSTILE)}": worker,
            "workers/g/worker-7": self.worker,
            "events/g/" + "1".zfill(20): event,
            REQUEST: self.request,
        })
        return served

    def test_hostile_names_stay_text(self):
        served = self.group()
        page = self.open(f"{served.url}/#/groups/g")
        wait(page, "name => document.querySelector('#partitions tbody').textContent.includes(name)",
             HOSTILE)
        wait(page, "name => document.querySelector('#workers tbody').textContent.includes(name)",
             HOSTILE)
        wait(page, "name => document.querySelector('#events').textContent.includes(name)",
             HOSTILE)
        # Every place that shows a name: panels, tips, dialogues, titles, the filter.
        page.locator("#workers tbody button", has_text=HOSTILE).click()
        page.get_by_role("button", name="Evict…").click()
        page.wait_for_selector("dialog[open]")
        self.assertIn(HOSTILE, page.locator("dialog").inner_text())
        page.get_by_role("button", name="Cancel").click()
        page.locator("#partitions tbody tr[data-at]", has_text=HOSTILE).first.click()
        wait(page, "name => document.getElementById('inspector-title').textContent.includes(name)",
             HOSTILE)
        page.get_by_role("button", name="Move…").click()
        page.wait_for_selector("dialog[open]")
        shoot(page, "hostile-names")
        page.get_by_role("button", name="Cancel").click()
        page.locator("#map .map-box").hover(position={"x": 200, "y": 12})
        page.get_by_label("Filter partitions by id or owner").fill("<img")
        wait(page, "document.querySelectorAll('#partitions tbody tr[data-at]').length === 1")
        images = page.evaluate("[...document.images].map((image) => image.getAttribute('src'))")
        self.assertEqual(set(images), {"/icon.svg"}, "no name became an image")
        self.assertIsNone(page.evaluate("window.hacked ?? null"))
        self.assert_fits(page, "a long name")

    def test_requests_under_way_are_shown_until_they_are_carried_out(self):
        served = self.group()
        page = self.open(f"{served.url}/#/groups/g")
        shown = "text => document.getElementById('requests').textContent.includes(text)"
        for text in ("waiting", "drain worker-7", HOSTILE, "a new kernel"):
            wait(page, shown, text)
        served.write({REQUEST: self.request | {"outcome": {"state": "accepted"}}})
        wait(page, shown, "under way")
        served.write({REQUEST: self.request | {"outcome": {"state": "done"}}})
        wait(page, "document.querySelectorAll('#requests li').length === 0")
        # What becomes unreadable meanwhile is told, too, and that it was mended.
        banner = "document.querySelector('.group-head + .banner').textContent"
        served.write({REQUEST: {"v": 1, "broken": HOSTILE}})
        number = REQUEST.rsplit("/", 1)[1]
        wait(page, f"{banner}.includes('{number} cannot be read')")
        served.write({REQUEST: self.request | {"outcome": {"state": "done"}}})
        wait(page, f"!{banner}.includes('{number}')")
        self.assertIsNone(page.evaluate("window.hacked ?? null"))

    def beating(self, served):
        """A page that has seen a worker beat; and that worker's row, in JavaScript."""
        page = self.open(f"{served.url}/#/groups/g")
        worker = "[...document.querySelectorAll('#workers tbody tr')]" \
                 ".find((row) => row.textContent.includes('worker-7'))"
        wait(page, f"Boolean({worker})")
        # Its clock is slow. That is nothing to be blamed for.
        slow = self.worker["renewed_at"] - 30_000
        for beat, state, word in ((3, 4, "stable"), (4, 5, "scaling"), (5, 4, "stable")):
            now = {"beat": beat, "state": state, "renewed_at": slow}
            served.write({"workers/g/worker-7": self.worker | now})
            wait(page, f"{worker}.cells[1].textContent === '{word}'")
        self.assertNotEqual(
            page.evaluate("document.querySelector('.group-head .state').textContent"),
            "nobody serves")
        return page, worker

    def test_a_store_that_is_not_heard_is_told_and_workers_are_not_blamed(self):
        served = self.group()
        page, worker = self.beating(served)
        (served.folder / "group.db").rename(served.folder / "away.db")
        wait(page, "document.getElementById('live').textContent === 'Store not heard'")
        wait(page, "document.querySelector('.group-head + .banner').textContent"
                   ".includes('does not hear its store')")
        shoot(page, "store-not-heard")
        self.assertTrue(page.evaluate("document.body.classList.contains('stale')"))
        # By its age alone it would be silent by now.
        wait(page, f"parseFloat({worker}.cells[2].textContent) >= 45")
        self.assertEqual(page.evaluate(f"{worker}.cells[1].textContent"), "stable")
        self.assertNotEqual(
            page.evaluate("document.querySelector('.group-head .state').textContent"),
            "nobody serves")

    def test_a_frozen_service_is_not_live_and_workers_are_not_blamed(self):
        served = self.group()
        page, worker = self.beating(served)
        served.process.signal(signal.SIGSTOP)
        self.addCleanup(served.process.signal, signal.SIGCONT)
        wait(page, "document.getElementById('live').textContent.startsWith('Not connected')")
        # By its age alone it would be silent by now.
        wait(page, f"parseFloat({worker}.cells[2].textContent) >= 45")
        self.assertNotIn("silent", page.evaluate(f"{worker}.cells[1].textContent"))
        served.process.signal(signal.SIGCONT)
        wait(page, "document.getElementById('live').textContent === 'Live'")
        # Now that the service says so itself, it is.
        wait(page, f"{worker}.cells[1].textContent.includes('silent')")

    def test_a_group_without_workers_is_served_by_nobody(self):
        served = self.serve()
        served.make_group("empty", "t", 4)
        page = self.open(f"{served.url}/#/groups/empty")
        wait(page, "document.querySelector('.group-head .state').textContent === 'nobody serves'")

    def test_the_focus_stays_where_the_hands_are(self):
        served = self.serve()
        served.make_group("g", "t", 1)
        status, _ = served.call("POST", "/v1/topics/t/messages",
                                {"messages": [{"payload": str(n)} for n in range(5)]})
        self.assertEqual(status, 200)
        now = int(time.time() * 1000)
        partition = {
            "v": 1, "epoch": 3, "owner": None, "incarnation": None, "start": 0, "offset": 1,
            "next_offset": 2, "begun": None, "nonce": "0000000000000001", "claimed_at": now,
            "updated_at": now,
        }
        served.write({"partitions/g/0": partition})
        page = self.open(f"{served.url}/#/groups/g")
        page.locator("#partitions tbody tr[data-at]").first.click()
        reset = page.locator("aside.inspector").get_by_role("button", name="Reset checkpoint…")
        reset.press("Enter")
        page.get_by_label("Go on at").select_option("offset")
        page.get_by_label("Next offset").fill("all")
        page.get_by_label("Reason").fill("a test")
        confirm = page.locator("dialog button[type=submit]")
        inside = "document.querySelector('dialog').contains(document.activeElement)"
        # Refused: no reason, then too long a one (the service counts bytes), then no offset.
        reason = page.get_by_label("Reason")
        for text in ("  ", "ü" * 251):
            reason.fill(text)
            confirm.press("Enter")
            wait(page, "document.activeElement.validationMessage !== ''")
            self.assertEqual(page.evaluate("document.activeElement.value"), text)
        reason.fill("a test")
        confirm.press("Enter")
        page.wait_for_selector("dialog .error:not([hidden])")
        self.assertTrue(page.evaluate(inside), "the focus stays in the dialogue")
        # A dry run that would change nothing leaves nothing to confirm, but to look again.
        page.get_by_label("Next offset").fill("2")
        confirm.press("Enter")
        wait(page, "document.querySelector('dialog .preview').textContent.includes('unchanged')")
        wait(page, "document.querySelector('dialog button[type=submit]').textContent === 'Dry run'")
        served.write({"partitions/g/0": partition | {"offset": 2, "next_offset": 3}})
        confirm.press("Enter")
        wait(page, "document.querySelector('dialog button[type=submit]').textContent"
                   ".startsWith('Reset')")
        self.assertTrue(page.evaluate(inside), "the focus stays in the dialogue")
        page.get_by_label("Next offset").fill("4")
        confirm.press("Enter")
        wait(page, "document.querySelector('dialog button[type=submit]').textContent"
                   ".startsWith('Reset')")
        self.assertTrue(page.evaluate(inside), "the focus stays in the dialogue")
        confirm.press("Enter")
        page.wait_for_selector("dialog", state="detached")
        self.assertEqual(page.evaluate("document.activeElement.textContent"), "Reset checkpoint…")
        # A button that has done its work keeps the focus; one that goes leaves it beside it.
        compare = page.get_by_role("button", name="Compare strategies")
        compare.press("Enter")
        wait(page, "document.querySelector('#whatif table') !== null")
        self.assertEqual(page.evaluate("document.activeElement.textContent"), "Compare strategies")
        older = page.get_by_role("button", name="Older events")
        older.press("Enter")
        older.wait_for(state="hidden")
        self.assertEqual(page.evaluate("document.activeElement.className"), "scroll")

    def test_every_width_light_and_dark(self):
        served = self.group()
        backgrounds = {}
        for scheme in ("light", "dark"):
            for width, height in ((390, 844), (1600, 1000)):
                what = f"{width}-{scheme}"
                page = self.open(served.url, width, height, scheme)
                page.get_by_role("link", name="g", exact=True).wait_for()
                self.assert_fits(page, f"the overview at {what}")
                shoot(page, f"overview-{what}")
                page.get_by_role("link", name="g", exact=True).click()
                page.wait_for_selector("#partitions tbody tr[data-at]")
                self.assert_fits(page, f"the group at {what}")
                shoot(page, f"group-{what}")
                # Whatever part is gone to, and with the panel open.
                page.locator("#whatif").scroll_into_view_if_needed()
                self.assert_fits(page, f"the end of the page at {what}")
                page.locator("#workers tbody button").first.click()
                page.wait_for_selector("aside.inspector:not([hidden])")
                self.assert_fits(page, f"the panel at {what}")
                self.assertEqual(page.evaluate(SQUEEZED), [], f"plots at {what} before a redraw")
                page.get_by_role("button", name="Evict…").click()
                page.wait_for_selector("dialog[open]")
                self.assert_inside(page, "dialog", f"the dialogue at {what}")
                shoot(page, f"dialog-{what}")
                light = page.evaluate(LIGHTNESS)
                backgrounds[scheme] = light["page"]
                self.assertGreater(contrast(light["page"], light["ink"]), 7, f"text at {what}")
        self.assertGreater(backgrounds["light"], 0.8)
        self.assertLess(backgrounds["dark"], 0.05)


    def test_thousands_of_partitions_at_every_width_light_and_dark(self):
        served = self.serve()
        served.write(dict(group_of(PARTITIONS, WORKERS)))
        mine = len(range(WORKERS - 1, PARTITIONS, WORKERS))
        for scheme in ("light", "dark"):
            for width, height in ((390, 844), (1600, 1000)):
                what = f"{width}-{scheme}"
                page = self.open(f"{served.url}/#/groups/g", width, height, scheme)
                wait(page, f"document.querySelectorAll('#workers tbody tr').length === {WORKERS}")
                found = "document.querySelector('#partitions [role=status]').textContent"
                wait(page, f"{found} === '{PARTITIONS:,}'")
                wait(page, "document.querySelector('#map .legend').textContent.includes('full from')")
                self.assert_fits(page, f"the group at {what}")
                shoot(page, f"large-{what}")
                # Only rows in view exist, however many partitions there are.
                rows = "document.querySelectorAll('#partitions tbody tr[data-at]').length"
                self.assertLess(page.evaluate(rows), 100)
                filtering = page.get_by_label("Filter partitions by id or owner")
                filtering.fill(f"worker-{WORKERS - 1}")
                wait(page, f"{found} === '{mine} of {PARTITIONS:,}'")
                self.assert_fits(page, f"what was filtered at {what}")
                page.locator("#partitions tbody tr[data-at]").first.click()
                wait(page, "text => document.getElementById('inspector-title').textContent === text",
                     f"Partition {WORKERS - 1}")
                self.assert_fits(page, f"the panel at {what}")
                self.assert_inside(page, "aside.inspector", f"the panel at {what}")
                shoot(page, f"large-filtered-{what}")
                page.close()

    def test_handoffs_are_shown_step_by_step_and_as_long_as_they_took(self):
        served = self.serve()
        records = dict(group_of(4, 1)) | dict(group_of(0, 2))
        told = {"v": 1, "version": 2, "term": 1, "incarnation": 1, "lifecycle": "stable",
                "serve": ["0", "1"], "prepare": [], "release": [], "nonce": NONCE}
        records["assignments/g/worker-0"] = told
        records["assignments/g/worker-1"] = told | {"serve": ["3"], "prepare": [
            {"partition": partition, "owner": "worker-0"} for partition in ("0", "1", "2")]}
        records["workers/g/worker-1"] |= {"ready": {"version": 2, "partitions": ["1"]}}
        records["partitions/g/3"] |= {"owner": None, "incarnation": None}

        def moved(number, took, pause):
            """A line of the history, of three that moved."""
            return {f"events/g/{number:020}": {
                "v": 1, "at": int(time.time() * 1000), "worker": "worker-0", "kind": "handoff",
                "text": "moved", "nonce": NONCE,
                "moves": {"count": 3, "reason": "x", "took_ms": took, "pause_ms": pause}}}

        steps = """() => Object.fromEntries([...document.querySelectorAll('.handoffs li:has(.now)')]
            .map((row) => [row.querySelector('.name')?.textContent,
                           row.querySelector('.now').textContent])
            .filter(([name]) => name !== undefined))"""
        plot = "text => document.querySelectorAll('.plot-head')[2].textContent === text"
        # What is over before anybody could see it has a length, too; also before the page is opened.
        served.write(records | moved(1, 40, 2) | moved(2, 90, 7))
        for scheme in ("light", "dark"):
            for width, height in ((390, 844), (1600, 1000)):
                what = f"{width}-{scheme}"
                page = self.open(f"{served.url}/#/groups/g", width, height, scheme)
                wait(page, plot, "Handoffs90 msp50 of 6 · pause 7 ms (rings)")
                shoot(page, f"durations-{what}")
                page.locator("#handoffs").scroll_into_view_if_needed()
                until("all stages", lambda: page.evaluate(steps) == {
                    "0": "preparing", "1": "ready", "2": "releasing", "3": "taking"})
                self.assert_fits(page, f"handoffs at {what}")
                shoot(page, f"handoffs-{what}")
        # So does the program, to whoever asks without a browser.
        described = subprocess.run(
            [parti(), "group", "describe", "--store", "sqlite:group.db", "--group", "g", "-o", "json"],
            cwd=self.folder, capture_output=True, text=True, check=True)
        self.assertEqual([move["stage"] for move in json.loads(described.stdout)["handoffs"]],
                         ["preparing", "ready", "releasing", "taking"])
        served.write(moved(3, 8, 1) | moved(4, 9, 1) | {
            "partitions/g/2": records["partitions/g/2"] | {"owner": None, "incarnation": None}})
        wait(page, plot, "Handoffs40 msp50 of 12 · pause 2 ms (rings)")
        until("the owner has let go", lambda: page.evaluate(steps)["2"] == "taking")

    def test_consumers_are_named_beside_their_workers(self):
        # A session lives for long without a sign of life.
        served = self.serve(config="heartbeat_interval: 1s\nheartbeat_ttl: 10m\n"
                                   "worker_id_ttl: 11m\nsettle_time: 200ms\n")
        served.make_group("g", "t", 4)
        page = self.open(f"{served.url}/#/groups/g")
        names = "text => document.getElementById('workers').textContent.includes(text)"
        panel = "text => document.querySelector('aside.inspector dl').textContent.includes(text)"
        # Each comes while the page is open; a name is text, whatever it is made of.
        for consumer, metadata in (("billing", {"host": "rack-7"}), (HOSTILE, {HOSTILE: [HOSTILE]})):
            status, opened = served.call("POST", "/v1/groups/g/sessions", {
                "consumer": consumer, "topic": "t", "metadata": metadata})
            self.assertEqual(status, 201, opened)
            wait(page, names, consumer)
            page.get_by_role("button", name=opened["worker"]).click()
            wait(page, panel, f"Consumer{consumer}")
            wait(page, panel, f"Metadata{next(iter(metadata))}: ")
        shoot(page, "consumers")
        images = page.evaluate("[...document.images].map((image) => image.getAttribute('src'))")
        self.assertEqual(set(images), {"/icon.svg"}, "no name became an image")
        self.assertIsNone(page.evaluate("window.hacked ?? null"))
        self.assert_fits(page, "a consumer's name")


# Runs in the page: which plots stick out of a summary that has just become narrower. No frame is
# drawn before the answer, so that none of them can have followed yet.
SQUEEZED = """() => {
    const summary = document.querySelector('.summary');
    summary.style.width = `${summary.clientWidth * 0.8}px`;
    const out = [...summary.querySelectorAll('.plot')]
        .filter(({ scrollWidth, clientWidth }) => scrollWidth > clientWidth)
        .map(({ scrollWidth, clientWidth }) => `${scrollWidth} of ${clientWidth} pixels`);
    summary.style.width = '';
    return out;
}"""

# Runs in the page: how light, as WCAG counts it, the page and its text are.
LIGHTNESS = """() => {
    const light = (colour) => {
        const [r, g, b] = colour.match(/[\\d.]+/g).map((part) => {
            const share = Number(part) / 255;
            return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const style = getComputedStyle(document.body);
    return { page: light(style.backgroundColor), ink: light(style.color) };
}"""


def contrast(one, other):
    low, high = sorted((one, other))
    return (high + 0.05) / (low + 0.05)


if __name__ == "__main__":
    unittest.main(verbosity=2)
