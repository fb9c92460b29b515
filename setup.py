"""Installs marti_ext; the versions are a set that was run together, but for those of `openrlhf`."""

from pathlib import Path

from setuptools import find_packages, setup

HF = ["torch==2.13.0", "transformers==5.15.0", "peft==0.21.2", "accelerate==1.15.0"]
OPENAI = ["openai==3.57.0"]
EVAL = [*OPENAI, "scipy==1.17.1"]
TRACKING = ["tensorboard==2.21.0", "wandb==0.31.0"]

setup(
    name="marti_ext",
    version="0.1.0",
    description="Train and evolve teams of language-model agents: CoMAS on OpenRLHF's ground",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.11,<3.12",
    packages=find_packages(include=["marti_ext", "marti_ext.*", "evaluation", "evaluation.*", "patches", "patches.*"]),
    package_data={"evaluation": ["fixtures/*.jsonl", "paper/*.yaml"]},
    install_requires=[
        "datasets==5.2.0",
        "jinja2==3.1.6",
        "math-verify==0.9.0",
        "matplotlib==3.11.2",
        "numpy==2.4.6",
        "pydantic==2.14.4",
        "PyYAML==6.0.4",
        "rich==15.0.0",
    ],
    extras_require={
        "hf": HF,
        "openai": OPENAI,
        "tracking": TRACKING,
        # The cluster's packages, in the versions that openrlhf pins.
        "openrlhf": ["openrlhf==0.11.2", "deepspeed==0.19.6", "vllm==0.29.0", "ray==2.55.0"],
        "eval": EVAL,
        # lm-evaluation-harness's graders; Minerva's need this antlr.
        "peers": [*EVAL, "lm_eval==0.4.13", "antlr4-python3-runtime==4.11.0"],
        "quickstart": [*HF, "gguf==0.19.0"],
        "dev": [
            *HF,
            *EVAL,
            *TRACKING,
            "gguf==0.19.0",
            "hypothesis==6.170.17",
            "mypy==2.4.1",
            "pytest==9.2.0",
            "ray==2.55.0",
            "ruff==0.17.6",
            "types-PyYAML==6.0.12.20261122",
        ],
    },
    entry_points={
        "console_scripts": ["marti-ext = marti_ext.cli:main"],
        # vLLM loads these in all its processes, where nothing else of ours reaches.
        "vllm.general_plugins": ["marti_ext_cpu = patches.cpu:activate"],
    },
)
