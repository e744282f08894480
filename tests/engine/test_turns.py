"""One thread at a time has the turn; who waits for a result gets it without one."""

import threading
import time

from edgert.engine.turns import Turns


def test_one_thread_at_a_time() -> None:
    turns, inside, most = Turns(), [], []

    def work() -> None:
        for _ in range(50):
            with turns.alone():
                inside.append(1)
                most.append(len(inside))
                time.sleep(0)
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert max(most) == 1
    assert len(most) == 200


def test_a_result_ends_the_wait_without_a_turn() -> None:
    turns = Turns()
    assert not turns.take_unless(lambda: True)
    is_ready, results = threading.Event(), []
    assert turns.take_unless(lambda: False)
    waiter = threading.Thread(target=lambda: results.append(turns.take_unless(is_ready.is_set)))
    waiter.start()
    is_ready.set()
    turns.give_back()
    waiter.join(10)
    assert results == [False]


def test_a_turn_that_an_interrupt_cut_off_can_be_taken_again_by_its_thread() -> None:
    turns = Turns()
    assert turns.take_unless(lambda: False)
    assert turns.is_mine
    assert turns.take_unless(lambda: False)
    turns.give_back()
    assert not turns.is_mine
