"""Runs of the script, one after another."""

from threading import Event, Thread
from time import sleep

import pytest

from pages.parts.turns import Turns


def test_runs_follow_each_other_in_the_order_in_which_they_came():
    turns, began = Turns(), list[int]()

    def run(number):
        with turns.take():
            began.append(number)

    with turns.take():
        before, runs = turns.last, []
        for number in range(20):
            runs.append(Thread(target=run, args=(number,)))
            runs[-1].start()
            while turns.last is before:  # the next asks once this one has
                sleep(0.001)
            before = turns.last
    for each in runs:
        each.join()
    assert began == [*range(20)]


def test_the_next_run_begins_beside_one_that_takes_long():
    turns, began = Turns(), Event()

    def run():
        with turns.take():
            began.set()

    with turns.take():
        Thread(target=run).start()
        began.wait()  # for ever, if the next waited for the end


def test_a_run_that_fails_gives_its_turn_back():
    turns = Turns()
    with pytest.raises(ValueError, match="run"), turns.take():
        raise ValueError("run")
    assert turns.last.ended.is_set()
    with turns.take():
        pass
