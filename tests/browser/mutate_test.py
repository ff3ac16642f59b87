"""Mistakes are put into the page one by one; the test of that feature must fail.

    TESSERA=build/tessera python3 mutate_test.py
"""

import contextlib
import io
import os
import tempfile
import unittest

import page_test

# (test, text that the page has once, the mistake that replaces it)
MISTAKES = (
    # It draws.
    ("every_tile_in_the_colour_of_its_class", "#f0a332", "#2667ba"),
    (
        "every_tile_in_the_colour_of_its_class",
        "word % 2 ? 2 : 1",
        "word % 2 ? 1 : 2",
    ),
    ("lists_are_chosen", "t.to[row] = t.to[row - 1];", ""),
    (
        "every_tile_in_the_colour_of_its_class",
        "if (tiles.kind[i] !== kind) continue;",
        "",
    ),
    (
        "every_tile_in_the_colour_of_its_class",
        "Math.round(at(t));",
        "Math.round(at(t)) + 40;",
    ),
    ("large_partial_tiles_are_hatched", "textured ? hatch :", ""),
    (
        "documents_stand_on_both_axes",
        "'band-b' : 'band-a'",
        "'band-a' : 'band-b'",
    ),
    (
        "documents_stand_on_both_axes",
        "spans.end[i] = at += r.next();",
        "spans.end[i] = at += r.next() + 4;",
    ),
    (
        "the_panel_counts",
        "list.full, list.full_share",
        "list.full, list.partial_share",
    ),
    ("the_panel_counts", "100 * list.bar[0]", "50 * list.bar[0]"),
    (
        "one_query_is_a_row_that_can_be_seen",
        "Math.min(64, h)",
        "Math.min(6, h)",
    ),
    (
        "warnings_are_shown",
        "for (const text of D.warnings)",
        "for (const text of [])",
    ),
    ("lists_are_chosen", "+$('row').value * D.heads", "+$('row').value"),
    ("one_list_of_many_is_told", "$('note').hidden = false;", ""),
    ("dark_where_the_user_asks_for_it", "--full: #4b93ea", "--full: #2667ba"),
    (
        "dark_where_the_user_asks_for_it",
        "{ readColors(); redraw(); }",
        "{ redraw(); }",
    ),
    (
        "sharp_on_a_dense_screen",
        "dpr = window.devicePixelRatio || 1",
        "dpr = 1",
    ),
    (
        "fits_again_when_the_window_changes",
        "new ResizeObserver(resize).observe($('stage'));",
        "",
    ),
    ("fits_a_narrow_window", "main { flex-direction: column; }", ""),
    # It hovers.
    ("tip_tells_of_the_tile", "const k0 = at.column *", "const k0 = at.row *"),
    (
        "tip_tells_of_the_tile",
        "q1 = Math.min(D.q_len, q0 + D.tile_q)",
        "q1 = q0 + D.tile_q",
    ),
    ("tip_tells_of_the_tile", "MEANING[kind]", "MEANING[2 - kind]"),
    (
        "one_query_is_a_row_that_can_be_seen",
        "signed(q0 + list.q_offset)",
        "signed(q0)",
    ),
    (
        "a_million_tokens_hover_and_zoom",
        "ends[mid] > value",
        "ends[mid] >= value",
    ),
    (
        "tip_goes_away_and_stays_inside",
        "clamp(py + 18, 4,",
        "Math.max(py + 18, 4,",
    ),
    (
        "tip_goes_away_and_stays_inside",
        "if (!pointers.size) setHover(null);",
        "",
    ),
    ("the_tile_under_the_pointer_is_marked", "if (hover) drawHover(v);", ""),
    # It zooms and moves.
    ("wheel_zooms_where_the_pointer_is", "Math.exp(-amount", "Math.exp(amount"),
    ("wheel_zooms_where_the_pointer_is", "viewX = x - (px - LEFT) / sx();", ""),
    (
        "wheel_zooms_where_the_pointer_is",
        "e.ctrlKey ? .008",
        "e.ctrlKey ? .0022",
    ),
    ("one_turn_of_the_wheel_has_a_limit", "-240, 240", "-480, 480"),
    (
        "keys_zoom_about_the_middle",
        "'-') middle(1 / 1.5)",
        "'-') middle(1 / 1.4)",
    ),
    ("keys_zoom_about_the_middle", "e.key === '+' || ", ""),
    ("keys_zoom_about_the_middle", "if (e.ctrlKey || e.metaKey || ", "if ("),
    (
        "keys_zoom_about_the_middle",
        "viewX = viewY = 0;\n  redraw();",
        "redraw();",
    ),
    (
        "zoom_ends_at_a_tile_that_fills_the_eye",
        "160 / Math.min",
        "320 / Math.min",
    ),
    (
        "arrows_move_by_an_eighth",
        "arrow[0] * mapW() / 8",
        "arrow[0] * mapW() / 4",
    ),
    (
        "arrows_move_by_an_eighth",
        "viewX = clamp(viewX, 0,",
        "viewX = clamp(viewX, -1e9,",
    ),
    (
        "shift_and_arrows_step_from_tile_to_tile",
        "at.row + dr, 0, D.rows - 1",
        "at.row + dr, 0, D.rows",
    ),
    (
        "shift_and_arrows_step_from_tile_to_tile",
        "stepTile(arrow[1], arrow[0])",
        "stepTile(arrow[0], arrow[1])",
    ),
    ("escape_hides_the_tip", "e.key === 'Escape'", "e.key === 'Esc'"),
    (
        "d_shows_and_hides_document_lines",
        "if (showLines) drawBoundaries",
        "drawBoundaries",
    ),
    ("d_shows_and_hides_document_lines", "e.key === 'd'", "e.key === 'D'"),
    (
        "buttons",
        "$('out').onclick = () => middle(1 / 1.5)",
        "$('out').onclick = () => middle(1.5)",
    ),
    (
        "drag_moves",
        "move(last[0] - px, last[1] - py)",
        "move(px - last[0], py - last[1])",
    ),
    ("drag_moves", "pointers.delete(e.pointerId);", ""),
    ("double_click_zooms", "zoomAt(2, ...local(e))", "zoomAt(3, ...local(e))"),
    ("two_fingers_zoom", "spread() / before", "before / spread()"),
    # 1 Mi tokens, and the console.
    (
        "a_million_tokens_open_in_two_seconds",
        "choose(D.chosen);",
        "for (const t = Date.now(); Date.now() - t < 2500;);\n"
        "choose(D.chosen);",
    ),
    ("a_million_tokens_open_in_two_seconds", "s < 1e-3 ? 0", "s < .6 ? 0"),
    (
        "a_million_tokens_open_in_two_seconds",
        "step(share, y * stride, b, -weight);",
        "",
    ),
    ("buttons", "choose(D.chosen);", "choose(D.chosen);\nconsole.error('no');"),
    (
        "buttons",
        "choose(D.chosen);",
        "choose(D.chosen);\nsetTimeout(() => none());",
    ),
    (
        "buttons",
        "choose(D.chosen);",
        "choose(D.chosen);\nnew Image().src = 'http://localhost/x.png';",
    ),
)


class MutateTest(unittest.TestCase):
    def test_each_mistake_is_noticed(self):
        passed = []
        with tempfile.TemporaryDirectory() as made:
            page_test.draw_pages(made)
            for test, old, new in MISTAKES:
                if not self.fails(made, test, old, new):
                    passed.append((test, old, new))
        noticed = len(MISTAKES) - len(passed)
        print(f"\nmistakes noticed: {noticed} of {len(MISTAKES)}")
        self.assertEqual(passed, [])

    def fails(self, made, test, old, new):
        with tempfile.TemporaryDirectory() as changed:
            for name in os.listdir(made):
                with open(os.path.join(made, name)) as file:
                    text = file.read()
                self.assertEqual(text.count(old), 1, f"in the page: {old}")
                with open(os.path.join(changed, name), "w") as file:
                    file.write(text.replace(old, new))
            os.environ["TESSERA_PAGES"] = changed
            name = f"page_test.PageTest.test_{test}"
            suite = unittest.defaultTestLoader.loadTestsFromName(name)
            with contextlib.redirect_stdout(io.StringIO()):
                result = unittest.TextTestRunner(io.StringIO()).run(suite)
            del os.environ["TESSERA_PAGES"]
        # An error is a fault of this test, not a mistake that was found.
        self.assertEqual(result.errors, [])
        return bool(result.failures)


if __name__ == "__main__":
    unittest.main()
