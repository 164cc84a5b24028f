"""Which task has the next round."""

import math

from kernelcast.tuning.scheduling import TaskHistory, first_size, next_task


def test_every_task_has_one_round_before_any_has_two() -> None:
    assert next_task([TaskHistory(1, [1.0]), TaskHistory(9, []), TaskHistory(9, [])], by_gain=True) == 1


def test_by_gain_the_share_of_the_whole_and_the_last_gains_decide() -> None:
    light, heavy = TaskHistory(1, [1.0]), TaskHistory(3, [0.5])
    assert next_task([light, heavy], by_gain=True) == 1
    # after four rounds: 0.2 * (8 - 5) / 3 + 0.8 * 5 / 4 against 0.8 * 4.5 / 4
    gaining, stuck = TaskHistory(1, [8.0, 7.0, 6.0, 5.0]), TaskHistory(1, [4.5, 4.5, 4.5, 4.5])
    assert next_task([stuck, gaining], by_gain=True) == 1


def test_a_task_of_which_nothing_was_measured_comes_last() -> None:
    failed, fine = TaskHistory(100, [math.inf]), TaskHistory(1, [1e-6, 1e-6])
    assert next_task([failed, fine], by_gain=True) == 1
    recovered = TaskHistory(1, [math.inf, math.inf, math.inf, 1e-3])
    assert next_task([recovered, fine], by_gain=True) == 0


def test_in_turn_the_task_with_the_fewest_rounds_is_next() -> None:
    assert next_task([TaskHistory(9, [9.0, 9.0]), TaskHistory(1, [1.0])], by_gain=False) == 1


def test_exhausted_tasks_are_left_out() -> None:
    assert next_task([TaskHistory(9, [9.0], is_over=True), TaskHistory(1, [1.0])], by_gain=True) == 1
    assert next_task([TaskHistory(1, [1.0], is_over=True), TaskHistory(1, [], is_over=True)], by_gain=True) is None


def test_a_small_budget_is_shared_so_that_every_task_has_a_first_round() -> None:
    left, sizes = 100, []
    for untried in range(8, 0, -1):
        sizes.append(first_size(64, left, untried))
        left -= sizes[-1]
    assert left == 0
    assert min(sizes) == 12
    assert first_size(64, 1000, 8) == 64
    assert first_size(64, 2, 8) == 1
