"""Who answers: from `--model` and `--agents` to agents."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from evaluation.gold import gold_reply, scripted, wrong_reply
from evaluation.journal import Journal, journaled
from marti_ext.agent import Agent
from marti_ext.backends.base import Backend, SamplingParams
from marti_ext.build import build_backends
from marti_ext.config import HFPolicy, OpenAIPolicy, Policy, PolicyName
from marti_ext.config_file import set_value
from marti_ext.errors import UserError
from marti_ext.types import Task

ScriptedModel = Literal["gold", "wrong"]
SCRIPTED = {"gold": gold_reply, "wrong": wrong_reply}
Source = Policy | ScriptedModel
Team = dict[PolicyName, Source]

# Servers fill what a request leaves out from the model's generation_config, so what is off is said to be off.
NEUTRAL = {"presence_penalty": 0.0, "frequency_penalty": 0.0}
NEUTRAL_ELSEWHERE = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}  # fields that OpenAI itself refuses


def parse_team(model: str | None, agents: str | None, base_url: str | None, settings: Sequence[str]) -> Team:
    """{agent: where it samples}: one agent on `model`, or `agents` as "a=MODEL,b=MODEL".

    A model is a folder or hub name, a name that the endpoint `base_url` serves, or "gold" or "wrong": replies written
    beforehand, to try a set-up without a model. `settings` are further keys of all of them, written key=value.
    Raises UserError for what cannot be read.
    """
    if (model is None) == (agents is None):
        raise UserError("give either --model M or --agents a=M,b=M")
    named = {"agent": model} if agents is None else _named(agents)
    values: dict[str, Any] = {}
    for setting in settings:
        set_value(values, setting)
    return {name: _source(name, str(model), base_url, values) for name, model in named.items()}


def _named(agents: str) -> dict[str, str]:
    named: dict[str, str] = {}
    for item in agents.split(","):
        name, equals, model = item.strip().partition("=")
        if not (name and equals and model):
            raise UserError(f"--agents {agents!r}: write a=MODEL,b=MODEL")
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
            raise UserError(f"--agents: name {name!r}: use 1 to 64 letters, digits, '_' or '-'")
        if name in named:
            raise UserError(f"--agents names {name!r} twice; each agent needs its own name")
        named[name] = model
    return named


def _source(name: str, model: str, base_url: str | None, settings: Mapping[str, Any]) -> Source:
    if model in SCRIPTED and base_url is None and not Path(model).exists():
        if settings:
            raise UserError(
                f"--set {next(iter(settings))}: agent {name!r} replies from the answers and has no settings"
            )
        return TypeAdapter(ScriptedModel).validate_python(model)
    values: dict[str, Any] = {"backend": "hf", "model": model}
    if base_url is not None:
        neutral = NEUTRAL if "api.openai.com" in base_url else NEUTRAL | NEUTRAL_ELSEWHERE
        values = {"backend": "openai", "model": model, "base_url": base_url, "extra_body": neutral}
    try:
        policy: Policy = TypeAdapter(Policy).validate_python(values | dict(settings))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"][1:])
        raise UserError(f"--set {key}: {first['msg']} (got {first['input']!r}), for agent {name!r}") from error
    return policy


def identity(team: Team) -> dict[str, Any]:
    """What of a team moves its replies: kept with the results, and compared when a run goes on."""
    free = {"base_url", "timeout", "max_retries", "api_key_env", "max_batch_size", "device"}
    return {
        name: source if isinstance(source, str) else source.model_dump(mode="json", exclude=free | {"training"})
        for name, source in team.items()
    }


class Speakers:
    """The loaded models of a team; agents are made of them for one set of tasks at a time."""

    def __init__(self, team: Team, sampling: SamplingParams, seed: int) -> None:
        self._team, self._sampling = team, sampling
        policies = {name: source for name, source in team.items() if not isinstance(source, str)}
        self._backends = build_backends(policies, seed)
        for name, backend in self._backends.items():
            window = backend.context_window
            if window is not None and sampling.max_tokens >= window:
                raise UserError(
                    f"--max-tokens is {sampling.max_tokens}, but the window of agent {name!r} holds {window} tokens, "
                    "prompt included: lower it"
                )

    async def check(self) -> None:
        """Raise UserError where an endpoint does not answer."""
        for backend in self._backends.values():
            await backend.check()

    def agents(self, tasks: Sequence[Task], journal: Journal) -> list[Agent]:
        """The team, its calls kept in the journal."""
        return [
            Agent(
                name,
                journaled(self._backend(name, source, tasks), name, journal),
                policy=name,
                sampling=self._sampling,
                trainable=False,
            )
            for name, source in self._team.items()
        ]

    def _backend(self, name: str, source: Source, tasks: Sequence[Task]) -> Backend:
        return scripted(tasks, SCRIPTED[source]) if isinstance(source, str) else self._backends[name]


def model_name(team: Team) -> str:
    """What the team is called where nobody named it: its models' names."""
    names = [source if isinstance(source, str) else _label(source) for source in team.values()]
    return "+".join(dict.fromkeys(names))


def _label(source: Policy) -> str:
    return Path(source.model).name if isinstance(source, HFPolicy | OpenAIPolicy) else source.backend
