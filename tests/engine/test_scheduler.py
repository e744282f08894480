"""The step plan: who gets how many tokens."""

from hypothesis import given
from hypothesis import strategies as st

from edgert.engine.scheduler import PlannedSpan, SequenceState, StepPlan, plan_step


def state(key: int, num_tokens: int, num_computed: int, last_step: int = -1, *, stalled: bool = False) -> SequenceState:
    return SequenceState(
        key=key, num_tokens=num_tokens, num_computed=num_computed, last_step=last_step, is_stalled=stalled
    )


def test_a_prompt_is_cut_into_steps_of_batch_tokens() -> None:
    assert plan_step([state(0, 20, 0)], 8).spans == (PlannedSpan(0, 0, 8, False),)
    assert plan_step([state(0, 20, 16)], 8).spans == (PlannedSpan(0, 16, 4, True),)


def test_decoding_sequences_go_on_beside_a_prompt() -> None:
    plan = plan_step([state(0, 9, 8, 3), state(1, 100, 0), state(2, 5, 4, 3)], 16, driver=1)
    assert plan.spans == (PlannedSpan(1, 0, 14, False), PlannedSpan(0, 8, 1, True), PlannedSpan(2, 4, 1, True))
    assert plan.num_tokens == 16


def test_the_sequence_that_is_waited_for_goes_first() -> None:
    states = [state(0, 9, 8, 1), state(1, 9, 8, 5)]
    assert [span.key for span in plan_step(states, 1, driver=1).spans] == [1]
    assert [span.key for span in plan_step(states, 1).spans] == [0]


def test_a_stalled_sequence_and_a_computed_one_are_left_alone() -> None:
    assert plan_step([state(0, 9, 8, stalled=True), state(1, 9, 9)], 8) == StepPlan(())


def test_two_prompts_share_a_step() -> None:
    plan = plan_step([state(0, 5, 0), state(1, 50, 0)], 16)
    assert plan.spans == (PlannedSpan(0, 0, 5, True), PlannedSpan(1, 0, 11, False))


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 40), st.integers(-1, 9), st.booleans()), max_size=12),
    st.integers(1, 64),
)
def test_every_plan_keeps_the_rules(drawn: list[tuple[int, int, int, bool]], batch_tokens: int) -> None:
    states = [
        state(key, num_tokens, min(num_computed, num_tokens), last_step, stalled=stalled)
        for key, (num_tokens, num_computed, last_step, stalled) in enumerate(drawn)
    ]
    plan = plan_step(states, batch_tokens)
    able = {s.key for s in states if not s.is_stalled and s.num_computed < s.num_tokens}
    assert plan.num_tokens <= batch_tokens
    assert len({span.key for span in plan.spans}) == len(plan.spans)
    assert {span.key for span in plan.spans} <= able
    assert bool(plan.spans) == bool(able)
    for span in plan.spans:
        s = states[span.key]
        assert span.start == s.num_computed
        assert 1 <= span.num_tokens <= s.num_tokens - s.num_computed
        assert span.is_last == (span.start + span.num_tokens == s.num_tokens)
    if len(able) <= batch_tokens:
        decoding = {k for k in able if states[k].num_tokens - states[k].num_computed == 1}
        assert decoding <= {span.key for span in plan.spans}


@given(st.integers(1, 7), st.integers(1, 20))
def test_with_more_sequences_than_tokens_each_gets_its_turn(batch_tokens: int, num_sequences: int) -> None:
    last_step = dict.fromkeys(range(num_sequences), -1)
    num_steps = -(-num_sequences // batch_tokens)
    for step in range(num_steps):
        plan = plan_step([state(key, 9, 8, last) for key, last in last_step.items()], batch_tokens)
        last_step.update({span.key: step for span in plan.spans})
    assert min(last_step.values()) >= 0
