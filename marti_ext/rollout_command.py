"""`marti-ext rollout`: one batch of episodes, rewarded and kept, nothing trained."""

from collections import Counter
from pathlib import Path

from rich.console import Console

from marti_ext.build import build_agents, build_backends, build_plan
from marti_ext.config import Config
from marti_ext.progress import RunProgress, say
from marti_ext.records import write_episodes
from marti_ext.run_folder import writable
from marti_ext.stages import all_failed, check_backends, give_rewards, roll_out
from marti_ext.transcript import print_episodes


def rollout(config: Config, console: Console, *, show: int = 0) -> Path:
    """The episodes of step 0, as training would make them, kept in `run_dir/rollout`. Prints the first `show`.

    Raises UserError for bad input, before anything is written.
    """
    plan = build_plan(config)
    backends = build_backends(config.policies, config.seed)
    agents = build_agents(config, backends, training=False)
    check_backends(backends)
    folder = writable(Path(config.run_dir) / "rollout")
    progress = RunProgress(console)
    with progress.shown(config.rollout.tasks_per_step * config.rollout.copies_per_task, 0, "episodes"):
        episodes = roll_out(config, plan, agents, 0, lambda _: progress.episode_done())
    try:
        give_rewards(plan.reward, [episode for episode in episodes if episode.status == "ok"])
    finally:  # a reward that fails costs no episode
        path = write_episodes(folder, 0, episodes)
    print_episodes(episodes, show, console)
    counts = Counter(episode.status for episode in episodes)
    if not counts["ok"]:
        raise all_failed(episodes, folder)
    say(console, f"{', '.join(f'{n} {status}' for status, n in counts.items())}: {path}")
    return path
