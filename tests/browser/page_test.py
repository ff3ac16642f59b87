"""The page of `tessera show -o x.html` in a real browser, as a user has it.

What each tile is comes from the mask's definition (plans.py), and where it is
drawn from the view that the page promises (View). dev/browser_test runs this:

    TESSERA=build/tessera python3 page_test.py [PageTest.test_...]
"""

import json
import math
import os
import tempfile
import time
import unittest

from browser import CTRL, SHIFT, Browser
from plans import EMPTY, FULL, PARTIAL, PLANS

SIZE = 1280, 800
LEFT, TOP, PAD = 92, 52, 18  # around the map: axes, and air
OPENING = 2.0  # seconds that 1 Mi tokens may take
NAMES = {
    EMPTY: "empty, no pair is legal",
    PARTIAL: "partial, some pairs are legal",
    FULL: "full, every pair is legal",
}
LIGHT = {EMPTY: 0xE8ECF2, PARTIAL: 0xF0A332, FULL: 0x2667BA}
DARK = {EMPTY: 0x222932, PARTIAL: 0xF2AB45, FULL: 0x4B93EA}
PAPER = {"light": (255, 255, 255), "dark": (0x11, 0x15, 0x1A)}
BANDS = (0xC9, 0xD3, 0xE0), (0xA9, 0xB8, 0xCB)


def commas(n):
    return f"{n:,}"


def tokens(begin, end):
    return commas(begin) + (f" to {commas(end - 1)}" if end > begin + 1 else "")


class View:
    """The place of each token on the page after zooms and moves."""

    def __init__(self, plan, stage):
        self.plan = plan
        self.left, self.top = stage["x"] + LEFT, stage["y"] + TOP
        self.width = stage["width"] - LEFT - PAD
        self.height = stage["height"] - TOP - PAD
        # One scale for both axes, unless an axis would be too short to see.
        both = min(self.width / plan.kv_len, self.height / plan.q_len)
        self.base_x = max(both, min(64, self.width) / plan.kv_len)
        self.base_y = max(both, min(64, self.height) / plan.q_len)
        self.reset()

    def reset(self):
        self.zoom, self.x, self.y = 1, 0, 0

    @property
    def sx(self):
        return self.base_x * self.zoom

    @property
    def sy(self):
        return self.base_y * self.zoom

    def keep_inside(self):
        most_x = max(0, self.plan.kv_len - self.width / self.sx)
        most_y = max(0, self.plan.q_len - self.height / self.sy)
        self.x = min(max(self.x, 0), most_x)
        self.y = min(max(self.y, 0), most_y)

    def zoom_by(self, factor, x=None, y=None):
        x = self.left + self.width / 2 if x is None else x
        y = self.top + self.height / 2 if y is None else y
        key, query = self.token(x, y)
        across = self.base_x * self.plan.tile_kv
        down = self.base_y * self.plan.tile_q
        most = max(1, 160 / min(across, down))
        self.zoom = min(max(self.zoom * factor, 1), most)
        self.x = key - (x - self.left) / self.sx
        self.y = query - (y - self.top) / self.sy
        self.keep_inside()

    def move(self, dx, dy):
        self.x += dx / self.sx
        self.y += dy / self.sy
        self.keep_inside()

    def show(self, row, column):
        """Moves the view by the least that shows the tile."""
        k0, k1 = self.plan.keys(column)
        q0, q1 = self.plan.queries(row)
        self.x = min(max(self.x, k1 - self.width / self.sx), k0)
        self.y = min(max(self.y, q1 - self.height / self.sy), q0)
        self.keep_inside()

    def token(self, x, y):
        """The (key, query) at the point, as fractions."""
        return (
            self.x + (x - self.left) / self.sx,
            self.y + (y - self.top) / self.sy,
        )

    def tile(self, x, y):
        """The tile (row, column) at the point, or None; "edge" if rounding decides."""
        key, query = self.token(x, y)
        if x < self.left or y < self.top:
            return None
        if key >= self.plan.kv_len or query >= self.plan.q_len:
            return None
        column, row = key / self.plan.tile_kv, query / self.plan.tile_q
        if any(not 1e-6 < at % 1 < 1 - 1e-6 for at in (column, row)):
            return "edge"
        return int(row), int(column)

    def middle(self, row, column):
        """The pixel in the middle of a tile, rounded as input events are."""
        k0, k1 = self.plan.keys(column)
        q0, q1 = self.plan.queries(row)
        return (
            round(self.left + ((k0 + k1) / 2 - self.x) * self.sx),
            round(self.top + ((q0 + q1) / 2 - self.y) * self.sy),
        )

    def holds(self, x, y, margin):
        """Whether the point is on the map, at least `margin` from its border."""
        return (
            self.left + margin <= x <= self.left + self.width - margin
            and self.top + margin <= y <= self.top + self.height - margin
        )


def setUpModule():
    global folder, page
    folder = os.environ.get("TESSERA_PAGES")
    if not folder:
        made = tempfile.TemporaryDirectory()
        unittest.addModuleCleanup(made.cleanup)
        folder = made.name
        draw_pages(folder)
    browser = Browser()
    page = browser.__enter__()
    unittest.addModuleCleanup(browser.__exit__)


def draw_pages(where):
    for name, plan in PLANS.items():
        plan.draw(os.environ["TESSERA"], os.path.join(where, name + ".html"))


class PageTest(unittest.TestCase):
    def setUp(self):
        page.resize(*SIZE)
        page.prefer("light")

    def tearDown(self):
        self.assertEqual(page.problems(), [], "the console stays empty")

    # ---- what the tests do and see ----

    def open(self, name):
        self.assertEqual(page.problems(), [])
        page.point(1, 1)
        page.open(os.path.join(folder, name + ".html"))
        self.plan = PLANS[name]
        self.view = View(self.plan, self.box("#stage"))
        return self.view

    def box(self, selector):
        return page.evaluate(
            f"document.querySelector({json.dumps(selector)})"
            ".getBoundingClientRect().toJSON()"
        )

    def text(self, selector):
        return page.evaluate(
            f"document.querySelector({json.dumps(selector)}).innerText"
        )

    def rows(self, selector):
        return page.evaluate(
            f"[...document.querySelectorAll({json.dumps(selector + ' tr')})]"
            ".map(r => [...r.cells].map(c => c.innerText))"
        )

    def click(self, selector):
        box = self.box(selector)
        page.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)

    def choose(self, selector, value):
        page.evaluate(
            f"(s => {{ s.value = {value}; s.dispatchEvent(new Event('change'))"
            f" }})(document.querySelector({json.dumps(selector)}))"
        )

    def tip(self):
        """The (heading, rows) of the box at the pointer, or None."""
        page.settle()
        if page.evaluate("document.getElementById('tip').hidden"):
            return None
        return self.text("#tip > div"), self.rows("#tip table")

    def tip_of(self, row, column, batch_row=0, head=0):
        """The (heading, rows) that the box must show for a tile."""
        plan = self.plan
        q, k = plan.queries(row), plan.keys(column)
        rows = [["tile", f"row {commas(row)}, column {commas(column)}"]]
        rows.append(["queries", tokens(*q)])
        at = [n + plan.q_offset for n in q]
        if plan.q_offset:
            text = f"{commas(at[0])} to {commas(at[1] - 1)}"
            rows.append(["positions", text])
        if plan.ids:
            rows.append(["of documents", self.names(*at)])
        rows.append(["keys", tokens(*k)])
        if plan.ids:
            rows.append(["of documents", self.names(*k)])
        kind = plan.class_of(row, column, batch_row, head)
        return NAMES[kind], rows

    def names(self, begin, end):
        ids = list(dict.fromkeys(self.plan.ids[begin:end]))
        names = ["padding" if i < 0 else str(i) for i in ids]
        more = len(names) - 6
        return ", ".join(names[:6]) + (f" and {more} more" if more > 0 else "")

    def look_at(self, x, y):
        """Checks that the box at a point is that of the view's tile there."""
        want = self.view.tile(x, y)
        self.assertNotEqual(want, "edge")
        page.point(x, y)
        self.assertEqual(self.tip(), want and self.tip_of(*want), (x, y))

    def look_around(self):
        """Checks points all over the map, away from the edges of tiles."""
        view = self.view
        seen = set()
        for i in range(7):
            x = round(view.left + view.width * (i * 0.37 % 1))
            y = round(view.top + view.height * (i * 0.61 % 1))
            while view.tile(x, y) == "edge":
                x, y = x + 2, y + 1
            seen.add(view.tile(x, y))
            self.look_at(x, y)
        self.assertGreater(len(seen - {None}), 2)

    def away(self):
        page.point(1, 1)

    def expect_tiles(self, colours=LIGHT, classes=None):
        """Checks the colour of each tile in view; returns the screenshot."""
        self.away()
        shot = page.screenshot()
        classes = classes or self.plan.classes()
        wrong, count = [], 0
        for r in range(self.plan.rows):
            for c in range(self.plan.columns):
                x, y = self.view.middle(r, c)
                if not self.view.holds(x, y, 6):
                    continue
                count += 1
                if self.kind_at(shot, x, y, colours) != classes[r][c]:
                    wrong.append((r, c))
        self.assertEqual(wrong, [])
        self.assertGreater(count, 5)
        return shot

    def kind_at(self, shot, x, y, colours):
        """The class whose colour most pixels around the point have.

        The hatch of partial tiles is lighter, so the nearest colour counts.
        """
        found = dict.fromkeys(colours, 0)
        for dx in range(-3, 4):
            for dy in range(-3, 4):
                far, kind = distances(shot.at(x + dx, y + dy), colours)[0]
                found[kind] += kind == PARTIAL or far == 0
        kind = max(found, key=found.get)
        return kind if found[kind] >= 30 else None

    # ---- it draws ----

    def test_every_tile_in_the_colour_of_its_class(self):
        view = self.open("packed")
        shot = self.expect_tiles()
        self.assertEqual(self.text("#scale"), "Each tile is drawn.")
        # All of the map is there, and nothing beside it.
        last = self.plan.classes()[-1][0]
        for x, y, colour in (
            (0, 0, LIGHT[PARTIAL]),
            (700 * view.sx - 2, 0, LIGHT[EMPTY]),
            (0, 700 * view.sy - 2, LIGHT[last]),
        ):
            found = shot.at(view.left + x + 1, view.top + y + 1)
            self.assertLess(distance(found, colour), 100, (x, y, found))
        for x, y in ((700 * view.sx + 3, 50), (50, 700 * view.sy + 3)):
            found = shot.at(view.left + x, view.top + y)
            self.assertEqual(found, PAPER["light"])

    def test_large_partial_tiles_are_hatched(self):
        view = self.open("packed")
        shot = page.screenshot()
        x, y = view.middle(0, 0)
        seen = {shot.at(x + dx, y + dy) for dx in range(-5, 6) for dy in (0, 1)}
        self.assertGreater(len(seen), 2)
        x, y = view.middle(2, 1)
        self.assertEqual(self.plan.class_of(2, 1), FULL)
        seen = {shot.at(x + dx, y + dy) for dx in range(-5, 6) for dy in (0, 1)}
        self.assertEqual(len(seen), 1)

    def test_documents_stand_on_both_axes(self):
        view = self.open("packed")
        shot = page.screenshot()
        begin = 0
        for i, length in enumerate(self.plan.documents + [45]):
            # A pixel near each end of the band, away from labels.
            for at in (begin + 3, begin + length - 3):
                want = BANDS[i % 2] if i < 4 else (0xF0, 0xF2, 0xF5)
                x, y = view.left + at * view.sx, view.top + at * view.sy
                self.assertEqual(shot.at(x, view.top - 19), want, (i, at))
                self.assertEqual(shot.at(view.left - 19, y), want, (i, at))
            begin += length

    def test_the_panel_counts(self):
        self.open("packed")
        plan = self.plan
        flat = sum(plan.classes(), [])
        counts = {k: flat.count(k) for k in NAMES}
        needed = paid = 0
        for r in range(plan.rows):
            for c in range(plan.columns):
                (q0, q1), (k0, k1) = plan.queries(r), plan.keys(c)
                if plan.class_of(r, c) != EMPTY:
                    paid += (q1 - q0) * (k1 - k0)
        for length in plan.documents:
            needed += length * (length + 1) // 2

        def share(n):
            return f"{100 * n / len(flat):.1f}%"

        self.assertEqual(
            self.rows("#tiles"),
            [
                ["full", commas(counts[FULL]), share(counts[FULL])],
                ["partial", commas(counts[PARTIAL]), share(counts[PARTIAL])],
                ["empty", commas(counts[EMPTY]), share(counts[EMPTY])],
                ["density", share(counts[FULL] + counts[PARTIAL]), ""],
            ],
        )
        self.assertEqual(
            self.rows("#work"),
            [
                ["paid", commas(paid)],
                ["needed", commas(needed)],
                ["paid is", f"{paid / needed:.2f}x the needed"],
                ["all pairs", commas(700 * 700)],
            ],
        )
        self.assertEqual(
            self.rows("#facts"),
            [
                ["queries", "700"],
                ["keys", "700"],
                ["tile", "32 x 32"],
                ["rows x columns", "22 x 22"],
                ["q_offset", "0"],
                ["documents", "4"],
            ],
        )
        self.assertEqual(self.text("#mask"), "causal & documents")
        self.assertEqual(page.evaluate("document.title"), "causal & documents")
        whole = self.box(".bar")["width"]
        for part, kind in (("#bar-f", FULL), ("#bar-p", PARTIAL)):
            width = self.box(part)["width"]
            self.assertAlmostEqual(width / whole, counts[kind] / len(flat), 2)

    def test_one_query_is_a_row_that_can_be_seen(self):
        view = self.open("decode")
        self.assertEqual(view.base_y, 64)
        self.look_at(view.left + 10, view.top + 60)
        self.look_at(round(view.left + 0.9 * view.width), view.top + 5)
        self.look_at(view.left + 10, view.top + 70)  # below it
        shot = page.screenshot()
        for column in (0, 50, 90):
            x, _ = view.middle(0, column)
            want = LIGHT[self.plan.class_of(0, column)]
            near = min(
                distance(shot.at(x + d, view.top + 60), want)
                for d in (-1, 0, 1)
            )
            self.assertLess(near, 100, column)

    def test_warnings_are_shown(self):
        self.open("padded")
        self.assertIn("no veto forbids", self.text("#warnings"))

    def test_lists_are_chosen(self):
        self.open("lists")
        for batch_row in (0, 1):
            for head in (1, 0):
                self.choose("#row", batch_row)
                self.choose("#head", head)
                self.assertEqual(self.text("#mask"), self.plan.masks[head])
                self.expect_tiles(classes=self.plan.classes(batch_row, head))

    def test_one_list_of_many_is_told(self):
        self.open("many")
        note = self.text("#note")
        self.assertIn("Only batch row 299, plan head 0 of 300", note)
        self.assertGreater(self.box("#note")["height"], 0)
        self.assertEqual(self.box("#row")["width"], 0)
        shot = page.screenshot()
        for r, c, kind in ((0, 0, PARTIAL), (0, 1, EMPTY), (1, 0, FULL)):
            found = self.kind_at(shot, *self.view.middle(r, c), LIGHT)
            self.assertEqual(found, kind)

    def test_dark_where_the_user_asks_for_it(self):
        view = self.open("packed")
        self.expect_tiles()
        page.prefer("dark")
        shot = self.expect_tiles(DARK)
        self.assertEqual(shot.at(view.left - 60, view.top - 40), PAPER["dark"])

    def test_sharp_on_a_dense_screen(self):
        page.resize(900, 640, scale=2)
        view = self.open("packed")
        self.look_around()
        shot = self.expect_tiles()
        self.assertEqual((shot.width, shot.height), (1800, 1280))
        # The first tile starts at a pixel of the screen, not one of CSS.
        before, first = (
            shot.at(view.left + at, view.top + 9) for at in (-0.5, 0)
        )
        self.assertEqual(before, PAPER["light"])
        self.assertEqual(distances(first, LIGHT)[0][1], PARTIAL)
        canvas = "document.getElementById('map').width"
        self.assertEqual(page.evaluate(canvas), 2 * self.box("#map")["width"])

    def test_fits_again_when_the_window_changes(self):
        self.open("packed")
        page.resize(1000, 560)
        page.settle()
        self.view = View(self.plan, self.box("#stage"))
        self.expect_tiles()
        self.look_around()

    def test_fits_a_narrow_window(self):
        page.resize(500, 900)
        self.open("packed")
        self.assertEqual(self.box("#stage")["width"], 500)
        self.expect_tiles()
        self.look_around()

    # ---- it hovers ----

    def test_tip_tells_of_the_tile(self):
        view = self.open("packed")
        last = self.plan.rows - 1
        for tile in ((0, 0), (3, 1), (9, 9), (2, 9), (7, 6), (last, last)):
            x, y = view.middle(*tile)
            page.point(x, y)
            self.assertEqual(self.tip(), self.tip_of(*tile))

    def test_tip_goes_away_and_stays_inside(self):
        view = self.open("packed")
        stage = self.box("#stage")
        for tile in ((0, 0), (21, 21), (21, 0), (0, 21)):
            page.point(*view.middle(*tile))
            self.assertIsNotNone(self.tip())
            tip = self.box("#tip")
            for side, size in (("x", "width"), ("y", "height")):
                end = stage[side] + stage[size]
                self.assertGreaterEqual(tip[side], stage[side])
                self.assertLessEqual(tip[side] + tip[size], end)
        for x, y in (
            (view.left - 5, view.top + 100),
            (view.left + 100, view.top - 5),
            (view.left + 700 * view.sx + 4, view.top + 100),
            (view.left + 100, view.top + 700 * view.sy + 4),
            (5, 5),
        ):
            page.point(*view.middle(5, 5))
            self.assertIsNotNone(self.tip())
            page.point(x, y)
            self.assertIsNone(self.tip(), (x, y))

    def test_the_tile_under_the_pointer_is_marked(self):
        view = self.open("packed")
        self.away()
        before = page.screenshot()
        x, y = view.middle(12, 4)
        page.point(x, y)
        after = page.screenshot()
        half = 16 * view.sx
        edge = after.at(x - half, y)
        self.assertLess(distance(edge, 0x1F2937), 60, edge)
        # Its row and column are a little darker; the rest is unchanged.
        for point in ((x, view.middle(1, 0)[1]), (view.middle(0, 20)[0], y)):
            self.assertLess(sum(after.at(*point)), sum(before.at(*point)))
        self.assertEqual(
            after.at(*view.middle(1, 15)), before.at(*view.middle(1, 15))
        )

    # ---- it zooms and moves ----

    def test_wheel_zooms_where_the_pointer_is(self):
        view = self.open("packed")
        first = self.expect_tiles()
        x, y = view.middle(14, 9)
        for amount, modifiers, each in ((-200, 0, 0.0022), (-60, CTRL, 0.008)):
            page.wheel(x, y, amount, modifiers)
            view.zoom_by(math.exp(-amount * each), x, y)
            self.assertEqual(view.tile(x, y), (14, 9))
            self.look_at(x, y)
            self.look_around()
        self.expect_tiles()
        for _ in range(4):  # more than needed: zooming out stops when all is visible
            page.wheel(x, y, 240)
        view.reset()
        self.look_around()
        self.assertEqual(self.expect_tiles(), first)

    def test_one_turn_of_the_wheel_has_a_limit(self):
        view = self.open("packed")
        x, y = view.middle(3, 2)
        page.wheel(x, y, -5000)
        view.zoom_by(math.exp(240 * 0.0022), x, y)
        self.look_around()

    def test_keys_zoom_about_the_middle(self):
        view = self.open("packed")
        first = self.expect_tiles()
        for key, factor in (("+", 1.5), ("=", 1.5), ("-", 1 / 1.5), ("+", 1.5)):
            page.key(key)
            view.zoom_by(factor)
            self.look_around()
        self.expect_tiles()
        page.key("0", CTRL)  # the browser's own zoom, not ours
        self.look_around()
        page.key("0")
        view.reset()
        self.look_around()
        self.assertEqual(self.expect_tiles(), first)

    def test_zoom_ends_at_a_tile_that_fills_the_eye(self):
        view = self.open("packed")
        page.key("+", times=9)
        for _ in range(9):
            view.zoom_by(1.5)
        self.assertAlmostEqual(view.sx * 32, 160)
        self.look_around()

    def test_arrows_move_by_an_eighth(self):
        view = self.open("packed")
        page.key("+", times=3)
        for _ in range(3):
            view.zoom_by(1.5)
        self.look_around()
        for key, dx, dy in (
            ("ArrowRight", 1, 0),
            ("ArrowDown", 0, 1),
            ("ArrowLeft", -1, 0),
            ("ArrowUp", 0, -1),
        ):
            page.key(key, times=2)
            for _ in range(2):
                view.move(dx * view.width / 8, dy * view.height / 8)
            self.assertIsNone(self.tip())
            self.look_around()
        page.key("ArrowLeft", times=20)  # to the border and no further
        view.move(-1e9, 0)
        self.look_around()
        self.expect_tiles()

    def test_shift_and_arrows_step_from_tile_to_tile(self):
        view = self.open("packed")
        page.key("+", times=4)
        for _ in range(4):
            view.zoom_by(1.5)
        page.point(*view.middle(11, 10))
        row, column = 11, 10
        for key, down, right in (
            ("ArrowRight", 0, 3),
            ("ArrowDown", 12, 0),  # past the last row
            ("ArrowLeft", 0, -6),
            ("ArrowUp", -2, 0),
        ):
            for _ in range(abs(down + right)):
                page.key(key, SHIFT)
                row = min(max(row + (down > 0) - (down < 0), 0), 21)
                column = min(max(column + (right > 0) - (right < 0), 0), 21)
                view.show(row, column)
            self.assertEqual(self.tip(), self.tip_of(row, column))
            name = NAMES[self.plan.class_of(row, column)].split(",")[0]
            said = f"Row {row}, column {column}: {name}"
            self.assertEqual(self.text("#live"), said)
        self.expect_tiles()
        self.look_around()

    def test_escape_hides_the_tip(self):
        view = self.open("packed")
        page.point(*view.middle(5, 5))
        self.assertIsNotNone(self.tip())
        page.key("Escape")
        self.assertIsNone(self.tip())

    def test_d_shows_and_hides_document_lines(self):
        view = self.open("packed")
        self.away()
        x = view.left + round(230 * view.sx)  # the first boundary
        _, top = view.middle(1, 0)

        def ink():
            shot = page.screenshot()
            column = {shot.at(x, top + dy) for dy in range(-9, 9)}
            left = view.left + 650 * view.sx
            row = {shot.at(left + dx, y0) for dx in range(9)}
            return len(column) > 1, len(row) > 1

        y0 = view.top + round(230 * view.sy)
        pressed = "document.getElementById('lines').ariaPressed"
        for press, shown in ((None, True), ("d", False), ("d", True)):
            if press:
                page.key(press)
            self.assertEqual(ink(), (shown, shown))
            self.assertEqual(page.evaluate(pressed), str(shown).lower())
        self.click("#lines")
        self.assertEqual(ink(), (False, False))

    def test_buttons(self):
        view = self.open("packed")
        for button, factor in (("#in", 1.5), ("#in", 1.5), ("#out", 1 / 1.5)):
            self.click(button)
            view.zoom_by(factor)
            self.look_around()
        self.click("#reset")
        view.reset()
        self.look_around()

    def test_drag_moves(self):
        view = self.open("packed")
        page.key("+", times=3)
        for _ in range(3):
            view.zoom_by(1.5)
        start = view.left + 300, view.top + 300
        end = start[0] - 130, start[1] + 75
        page.drag(start, end)
        view.move(130, -75)
        self.look_around()
        page.point(start[0], start[1])  # and only while it is held
        self.look_around()

    def test_double_click_zooms(self):
        view = self.open("packed")
        x, y = view.middle(6, 6)
        page.click(x, y, times=2)
        view.zoom_by(2, x, y)
        self.look_around()

    def test_two_fingers_zoom(self):
        view = self.open("packed")
        x, y = view.middle(10, 8)
        page.touch("touchStart", (x - 50, y), (x + 50, y))
        page.touch("touchMove", (x - 50, y), (x + 80, y))
        page.touch("touchEnd")
        view.zoom_by(1.3, x + 15, y)
        self.look_around()

    # ---- 1 Mi tokens ----

    def test_a_million_tokens_open_in_two_seconds(self):
        # The best of three: the machine may be busy with something else.
        took = []
        for _ in range(3):
            start = time.monotonic()
            view = self.open("million")
            shot = page.screenshot()
            took.append(time.monotonic() - start)
            if took[-1] < OPENING:
                break
        print(f"\n1 Mi tokens: {min(took):.2f} s to the first picture")
        self.assertLess(min(took), OPENING)
        self.assertIn("A pixel holds several tiles", self.text("#scale"))
        self.expect_shares(view, shot)

    def expect_shares(self, view, shot):
        """Checks pixels of many tiles: ink where tiles are active, else none."""
        longest = max(range(len(self.plan.documents)),
                      key=self.plan.documents.__getitem__)
        begin = sum(self.plan.documents[:longest])
        length = self.plan.documents[longest]
        # Inside the lower triangle of the longest document all tiles are full.
        x = view.left + (begin + 0.25 * length) * view.sx
        y = view.top + (begin + 0.75 * length) * view.sy
        near = distances(shot.at(x, y), LIGHT)
        self.assertEqual(near[0][1], FULL, shot.at(x, y))
        for i in range(1, 10):
            at = view.height * i / 20
            found = shot.at(view.left + 2 * at, view.top + at)
            self.assertEqual(distance(found, LIGHT[EMPTY]), 0, "above")
            # The diagonal is nowhere empty.
            found = [shot.at(view.left + at, view.top + at + d) for d in (0, 1)]
            self.assertTrue(
                any(distance(f, LIGHT[EMPTY]) > 30 for f in found), found
            )

    def test_a_million_tokens_hover_and_zoom(self):
        view = self.open("million")
        self.look_around()
        x = round(view.left + 0.4 * view.height)
        y = round(view.top + 0.4 * view.height)
        for _ in range(14):
            page.wheel(x, y, -240)
            view.zoom_by(math.exp(240 * 0.0022), x, y)
        self.assertEqual(self.text("#scale"), "Each tile is drawn.")
        self.look_around()
        self.expect_visible_tiles()
        page.key("0")
        view.reset()
        self.look_around()

    def expect_visible_tiles(self):
        self.away()
        shot, view, plan = page.screenshot(), self.view, self.plan
        first_row, first_column = int(view.y / 128), int(view.x / 128)
        count = 0
        for r in range(first_row, min(plan.rows, first_row + 12)):
            for c in range(first_column, min(plan.columns, first_column + 12)):
                x, y = view.middle(r, c)
                if view.holds(x, y, 6):
                    count += 1
                    found = self.kind_at(shot, x, y, LIGHT)
                    self.assertEqual(found, plan.class_of(r, c), (r, c))
        self.assertGreater(count, 8)


def distance(found, colour):
    want = colour >> 16, colour >> 8 & 255, colour & 255
    return sum(abs(a - b) for a, b in zip(found, want))


def distances(found, colours):
    """(distance, class) of each class, nearest first."""
    return sorted((distance(found, colour), k) for k, colour in colours.items())


if __name__ == "__main__":
    unittest.main()
