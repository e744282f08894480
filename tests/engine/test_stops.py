"""Stop strings across pieces of text."""

from hypothesis import given
from hypothesis import strategies as st

from edgert.engine.stops import StopMatcher


def test_text_is_cut_at_the_stop_string() -> None:
    assert StopMatcher(("\n\n",)).feed("one\n\ntwo") == ("one", True)


def test_text_waits_while_a_stop_string_may_grow() -> None:
    matcher = StopMatcher(("END",))
    assert matcher.feed("a E") == ("a ", False)
    assert matcher.feed("N") == ("", False)
    assert matcher.feed("x") == ("ENx", False)
    assert matcher.feed("EN") == ("", False)
    assert matcher.feed("D!") == ("", True)


def test_what_was_held_back_comes_out_at_the_end() -> None:
    matcher = StopMatcher(("User:",))
    assert matcher.feed("Us") == ("", False)
    assert matcher.flush() == "Us"
    assert matcher.flush() == ""


def test_the_first_of_several_stop_strings_counts() -> None:
    assert StopMatcher(("cd", "b")).feed("abcd") == ("a", True)


def test_without_stop_strings_nothing_waits() -> None:
    assert StopMatcher(()).feed("text") == ("text", False)


@given(
    st.lists(st.text("abc", max_size=4), max_size=8),
    st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_pieces_give_what_the_whole_text_gives(pieces: list[str], stops: list[str]) -> None:
    whole = "".join(pieces)
    ends = [whole.find(stop) for stop in stops if stop in whole]
    matcher = StopMatcher(tuple(stops))
    given_out, found = "", False
    for piece in pieces:
        text, found = matcher.feed(piece)
        given_out += text
        if found:
            break
    if not found:
        given_out += matcher.flush()
    assert found == bool(ends)
    if not ends:
        assert given_out == whole
    else:
        # A stop string that is complete earlier in the stream may begin later in the text.
        assert whole.startswith(given_out)
        assert not any(stop in given_out for stop in stops)
        assert any(whole[len(given_out) :].startswith(stop) for stop in stops)
