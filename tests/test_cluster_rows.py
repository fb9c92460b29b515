"""From samples to OpenRLHF's rows: shifted, whole, dealt evenly."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from marti_ext.types import Sample
from patches.cpu import activate_training


def experiences(samples: Sequence[Sample], **options: Any) -> tuple[list[Any], int]:
    activate_training()  # OpenRLHF cannot be imported before
    from marti_ext.cluster.rows import experiences

    return experiences(samples, **options)


def sample(number: int, prompt: int = 2, reply: int = 3) -> Sample:
    zeros = np.zeros(prompt, np.float32)
    mask = np.concatenate([zeros > 0, np.ones(reply, np.bool_)])
    return Sample(
        policy="a",
        group=(f"task-{number}", "ada", "solution", 0),
        token_ids=np.arange(10 * number, 10 * number + prompt + reply),
        action_mask=mask,
        rollout_log_probs=np.concatenate([zeros, np.full(reply, -0.5, np.float32)]),
        reward=float(number),
        advantages=np.where(mask, np.float32(number), np.float32(0)),
    )


def numbers(rows: list) -> list[int]:  # type: ignore[type-arg]
    """The samples' numbers, -1 for a filler."""
    return [int(row.sequences[0, 0]) // 10 if row.action_mask.any() else -1 for row in rows]


def test_a_row_describes_each_token_one_place_before_it() -> None:
    [row, *_], _ = experiences([sample(3)], batch_size=1, ranks=1, end_token=0)
    # Tokens 30 31 | 32 33 34: four steps, of which the last three sample a token.
    assert row.sequences.tolist() == [[30, 31, 32, 33, 34]]
    assert row.attention_mask.tolist() == [[1, 1, 1, 1, 1]]
    assert row.action_mask.tolist() == [[False, True, True, True]]
    assert row.rollout_log_probs.tolist() == [[0.0, -0.5, -0.5, -0.5]]
    assert row.advantages.tolist() == [[0.0, 3.0, 3.0, 3.0]]
    assert (row.rewards.tolist(), row.response_length.tolist(), row.total_length.tolist()) == ([3.0], [3.0], [5.0])


def test_rows_are_filled_up_to_whole_updates_and_dealt_to_the_ranks_in_turn() -> None:
    # Five rows in batches of 4: three fillers. Ranks 0 and 1 take every other row.
    rows, fillers = experiences([sample(n) for n in range(5)], batch_size=4, ranks=2, end_token=7)
    assert fillers == 3
    assert numbers(rows) == [0, 2, 4, -1, 1, 3, -1, -1]
    assert rows[-1].sequences.tolist() == [[7, 7]]


def test_fewer_rows_than_ranks_are_trained_on_all_the_same() -> None:
    rows, fillers = experiences([sample(1)], batch_size=8, ranks=4, end_token=0)
    assert fillers == 7
    assert numbers(rows) == [1, -1, -1, -1, -1, -1, -1, -1]


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 40), st.sampled_from([1, 2, 4]), st.integers(1, 4), st.randoms(use_true_random=False))
def test_no_row_is_lost_or_doubled_and_their_order_does_not_matter(count, ranks, batches, random) -> None:  # type: ignore[no-untyped-def]
    samples = [sample(n) for n in range(count)]
    rows, fillers = experiences(samples, batch_size=ranks * batches, ranks=ranks, end_token=0)
    assert sorted(n for n in numbers(rows) if n >= 0) == list(range(count))
    assert len(rows) == count + fillers
    assert len(rows) % (ranks * batches) == 0
    assert fillers < ranks * batches
    share = len(rows) // ranks
    real = [sum(n >= 0 for n in numbers(rows)[rank * share : (rank + 1) * share]) for rank in range(ranks)]
    assert all(0 <= one - other <= 1 for one, other in pairwise(real))
    shuffled = list(samples)
    random.shuffle(shuffled)
    again, _ = experiences(shuffled, batch_size=ranks * batches, ranks=ranks, end_token=0)
    assert numbers(again) == numbers(rows)


def test_a_row_of_one_prompt_token_keeps_its_first_reply_token() -> None:
    [row, *_], _ = experiences([sample(0, prompt=1, reply=2)], batch_size=1, ranks=1, end_token=0)
    assert row.action_mask.tolist() == [[True, True]]
    assert row.advantages.shape == (1, 2)


def test_no_samples_are_no_rows() -> None:
    assert experiences([], batch_size=4, ranks=1, end_token=0) == ([], 0)
