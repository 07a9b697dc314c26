"""A calculation that nobody foresaw ends in a sentence, and no other one does."""

from itertools import chain, repeat
from threading import Thread
from time import thread_time

import pytest

from calc import Architecture, ConfigError
from calc import budget as limits
from calc.budget import budget, spend, spent
from presets import models


def test_what_never_ends_ends_in_a_sentence():
    with pytest.raises(ConfigError, match="stopped: it takes more than 0"), budget(0.3):
        for _ in spent(repeat(None)):
            pass


def test_what_eats_memory_ends_in_a_sentence(monkeypatch):
    monkeypatch.setattr(limits, "MEGABYTES", 100)
    with pytest.raises(ConfigError, match="or 100 MB"), budget(60.0):
        assert [b"x" * (10**6 + number) for number, _ in enumerate(spent(repeat(None)))]


def test_a_part_has_the_budget_of_the_whole():
    with pytest.raises(ConfigError), budget(0.2), budget(60.0):
        for _ in spent(repeat(None)):
            pass
    spend()  # of no budget


def test_a_budget_is_its_own_thread_s():
    """Others compute meanwhile, and their seconds are theirs."""
    others = [Thread(target=lambda: sum(range(10**7))) for _ in range(3)]
    with budget(0.2):
        for other in others:
            other.start()
        for other in others:
            other.join()
        spend()


@pytest.mark.slow
def test_who_eats_memory_stops_no_other(monkeypatch):
    """Both run in one process, whose memory was too large for both."""
    monkeypatch.setattr(limits, "MEGABYTES", 100)
    monkeypatch.setattr(limits, "MEGABYTES_OF_TURNS", 20)
    ends = dict[str, str]()

    def run(name: str, eats: bool) -> None:
        eaten, start = [], thread_time()
        try:
            with budget(60.0):
                while thread_time() - start < 0.7:
                    spend()
                    if eats:
                        eaten.append(b"x" * (10**5 + len(eaten)))
                ends[name] = "answers"
        except ConfigError:
            ends[name] = "given up"

    threads = [Thread(target=run, args=each) for each in (("eats", True), ("counts", False), ("counts too", False))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ends == {"eats": "given up", "counts": "answers", "counts too": "answers"}
    assert not limits.RUNNING
    assert not limits.TURN.locked()


def test_configs_and_steps_have_a_budget(monkeypatch):
    """Each door that reads a config opens one."""
    monkeypatch.setattr(limits, "BETWEEN_LOOKS", 0.0)
    config = models()["Qwen/Qwen3-8B"].config
    monkeypatch.setattr(limits, "resident", chain([0], repeat(10**12)).__next__)
    with pytest.raises(ConfigError, match="was stopped"):
        Architecture.from_config(config)
