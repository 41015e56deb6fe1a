"""The adapters in `examples/`, with workers that grade in no time; against each real package that is installed."""

import asyncio
import importlib.util
import math
import sys
import threading
from pathlib import Path

import pytest

from tests.batch.conftest import worker  # noqa: F401 - a fixture
from warpgrade import InfraError, read_card

EXAMPLES = Path(__file__).parents[2] / "examples"
RIGHT, WRONG, LOST = "# right", "# wrong", "# lost 99"


@pytest.fixture
def example(worker):  # noqa: F811
    opened = []

    def load(name):
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.OPTIONS = {**module.OPTIONS, "device": "cpu", "jobs": 2}
        opened.append(module)
        return module

    yield load
    for module in opened:
        module.grader().close()


def test_trl_rewards_are_in_order_and_masked(example):
    module = example("trl_reward")
    chat = [{"role": "assistant", "content": RIGHT}]
    paid = module.kernel_reward([RIGHT, WRONG, LOST, chat], problem=["relu"] * 4, prompts=["p"] * 4, trainer_state=None)
    assert paid == [pytest.approx(0.3 + 2.96, abs=0.01), 0.0, None, paid[0]]
    assert module.kernel_reward([], problem=[]) == []
    with pytest.raises(RuntimeError, match="grades nothing"):
        module.kernel_reward([LOST], problem=["relu"])


def test_a_toy_policy_learns_to_write_kernels(example):
    answers = {"right": RIGHT, "wrong": WRONG, "lost": LOST}
    spec = importlib.util.spec_from_file_location("toy_policy", EXAMPLES / "toy_policy.py")
    toy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(toy)
    found, lost = toy.train(answers, "relu", example("trl_reward").kernel_reward, steps=4, group=6)
    assert found["right"] > found["lost"] > found["wrong"]
    assert 0 < lost < 24


def test_verl_has_a_neutral_reward_for_a_failure_of_the_machine(example):
    module = example("verl_reward")

    def score(text):
        return asyncio.run(module.compute_score("kernels", text, "relu", extra_info={}))

    with pytest.raises(InfraError, match="grades nothing"):
        score(LOST)
    right, wrong, lost = score(RIGHT), score(WRONG), score(LOST)
    assert (right["acc"], wrong["score"]) == (1.0, 0.0)
    assert lost == {"score": pytest.approx(right["score"] / 2), "acc": 0.0, "infra_error": 1.0}
    assert lost.keys() == right.keys()


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_trl_trains_with_it(example, tmp_path):
    """A step of a real trainer on a random model, and the advantages that it derives from masked rewards."""
    trl = pytest.importorskip("trl")
    datasets = pytest.importorskip("datasets")
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    module = example("trl_reward")
    words = ["<pad>", "</s>", "<unk>", "#", "right", "wrong", "lost", "99", "kernel"]
    words_model = tokenizers.models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="<unk>")
    plain = tokenizers.Tokenizer(words_model)
    plain.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )
    config = transformers.LlamaConfig(
        vocab_size=len(words), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2
    )
    answers = iter([RIGHT, WRONG, LOST, RIGHT] * 4)
    graded = []

    def reward(completions, **columns):
        completions = [next(answers) for _ in completions]
        graded.append(module.kernel_reward(completions, **columns))
        return graded[-1]

    options = {"per_device_train_batch_size": 4, "num_generations": 4, "max_completion_length": 4, "max_steps": 1}
    trainer = trl.GRPOTrainer(
        model=transformers.LlamaForCausalLM(config),
        processing_class=tokenizer,
        reward_funcs=reward,
        args=trl.GRPOConfig(output_dir=str(tmp_path), report_to=[], use_cpu=True, logging_steps=1, **options),
        train_dataset=datasets.Dataset.from_dict({"prompt": ["kernel"] * 4, "problem": ["relu"] * 4}),
    )
    trainer.train()
    (paid,) = graded
    assert paid[2] is None
    logged = next(entry for entry in trainer.state.log_history if "reward" in entry)
    # The mean leaves the masked completion out; with 0 in its place it would be lower.
    assert logged["reward"] == pytest.approx(2 * paid[0] / 3, rel=1e-3)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_verl_takes_it(example):
    naive = pytest.importorskip("verl.experimental.reward_loop.reward_manager.naive")
    import numpy as np
    import torch

    module = example("verl_reward")

    class Tokenizer:
        def decode(self, ids, **_):
            return (WRONG, RIGHT)[int(ids[0])]

    async def program():
        manager = naive.NaiveRewardManager(config=None, tokenizer=Tokenizer(), compute_score=module.compute_score)
        found = []
        for number in range(2):
            tensors = {"responses": torch.tensor([[number]]), "attention_mask": torch.ones(1, 2, dtype=torch.long)}
            others = {
                "data_source": np.array(["kernels"], dtype=object),
                "reward_model": np.array([{"ground_truth": "relu"}], dtype=object),
                "extra_info": np.array([{}], dtype=object),
            }
            data = naive.DataProto.from_dict(tensors=tensors, non_tensors=others)
            found.append(await manager.run_single(data))
        return found

    wrong, right = asyncio.run(program())
    assert wrong["reward_score"] == 0.0
    assert right["reward_score"] > 3
    assert right["reward_extra_info"]["infra_error"] == 0.0


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_inspect_scores_with_it(example, tmp_path):
    inspect_ai = pytest.importorskip("inspect_ai")
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ModelOutput, ModelUsage, get_model
    from inspect_ai.solver import generate

    module = example("inspect_scorer")
    outputs = [ModelOutput.from_content("mockllm/model", text) for text in (RIGHT, WRONG, LOST)]
    for output in outputs:
        output.usage = ModelUsage()  # otherwise the mock downloads a tokenizer
    task = inspect_ai.Task(
        dataset=[Sample(input=str(n), target="relu") for n in range(3)],
        solver=generate(),
        scorer=module.correct_kernel(),
    )
    (log,) = inspect_ai.eval(
        task,
        model=get_model("mockllm/model", custom_outputs=outputs),
        log_dir=str(tmp_path),
        max_samples=1,
        display="none",
    )
    assert log.status == "success", log.error
    scores = [sample.scores["correct_kernel"] for sample in log.samples]
    assert [score.value for score in scores[:2]] == [1.0, 0.0]
    assert math.isnan(scores[2].value)
    assert "C405" in scores[1].explanation
    assert log.results.scores[0].metrics["accuracy"].value == 0.5


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_verifiers_rewards_with_it(example):
    vf = pytest.importorskip("verifiers.v1")
    module = example("verifiers_taskset")
    tasks = list(module.KernelTaskset(vf.TasksetConfig(id="kernels")))
    assert [task.data.problem for task in tasks] == ["relu", "softmax"]

    right, wrong, lost = Trace(RIGHT), Trace(WRONG), Trace(LOST)
    asyncio.run(tasks[0].score(right))
    asyncio.run(tasks[0].score(wrong))
    with pytest.raises(vf.TaskError, match="died"):
        asyncio.run(tasks[0].score(lost))
    assert right.rewards["speedup"] > 3
    assert [wrong.rewards, lost.rewards] == [{"speedup": 0.0}, {"speedup": None}]


class Trace:
    """The part of a trace that scoring uses."""

    def __init__(self, last_reply):
        self.last_reply, self.metrics, self.rewards = last_reply, {}, {}

    def record_reward(self, name, value, weight):
        self.rewards[name] = value * weight


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_harbor_verifies_with_it(example, tmp_path, monkeypatch):
    """Task, paths, factory and result are Harbor's; only the container is a shell of this machine."""
    harbor = pytest.importorskip("harbor", reason="harbor needs Python 3.12: pip install harbor")
    from harbor.environments.base import ExecResult
    from harbor.models.task.task import Task
    from harbor.models.trial.paths import TrialPaths
    from harbor.verifier.factory import VerifierFactory

    class Shell:
        async def exec(self, command, timeout_sec):
            program = await asyncio.create_subprocess_shell(
                command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
            )
            said, _ = await asyncio.wait_for(program.communicate(), timeout_sec)
            return ExecResult(stdout=said.decode(), return_code=program.returncode)

    assert harbor.__version__
    module = example("harbor_verifier")
    monkeypatch.setitem(sys.modules, "harbor_verifier", module)
    answer = tmp_path / "an answer.py"
    task = tmp_path / "task"
    (task / "environment").mkdir(parents=True)
    (task / "instruction.md").write_text("Write a kernel.")
    (task / "task.toml").write_text(f'[metadata]\nproblem = "relu"\nsubmission = "{answer}"\n')

    def verified(text):
        if text is not None:
            answer.write_text(text)
        verifier = VerifierFactory.create_verifier_from_import_path(
            "harbor_verifier:KernelVerifier",
            task=Task(task, disable_verification=True),
            trial_paths=TrialPaths(tmp_path / "trial"),
            environment=Shell(),
        )
        return asyncio.run(verifier.verify()).rewards

    assert verified(None) == {"reward": 0.0, "correct": 0.0}
    assert verified(WRONG) == {"reward": 0.0, "correct": 0.0}
    assert verified(RIGHT) == {"reward": pytest.approx(3.26, abs=0.01), "correct": 1.0}
    assert read_card(tmp_path / "trial" / "verifier" / "scorecard.json").correct
    with pytest.raises(InfraError):
        verified(LOST)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_openenv_serves_it(example):
    """A client of OpenEnv against a server of OpenEnv, over a socket of this machine."""
    client = pytest.importorskip("openenv.core.generic_client", reason="pip install openenv-core")
    import uvicorn

    module = example("openenv_environment")
    server = uvicorn.Server(uvicorn.Config(module.app, host="127.0.0.1", port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            thread.join(0.05)
        port = server.servers[0].sockets[0].getsockname()[1]
        asyncio.run(asyncio.wait_for(episode(client.GenericEnvClient(base_url=f"http://127.0.0.1:{port}")), 120))
    finally:
        server.should_exit = True
        thread.join(60)


async def episode(environment):
    async with environment:
        begun = await environment.reset(problem="softmax")
        assert (begun.done, begun.observation["problem"]) == (False, "softmax")
        lost = await environment.step({"answer": LOST})
        assert (lost.reward, lost.done, lost.observation["status"]) == (None, False, "infra_error")
        wrong = await environment.step({"answer": WRONG})
        assert (wrong.reward, wrong.done) == (0.0, False)
        assert "C405" in wrong.observation["text"]
        right = await environment.step({"answer": RIGHT})
        assert (right.reward, right.done) == (pytest.approx(3.26, abs=0.01), True)
        assert (await environment.state())["step_count"] == 2

        await environment.reset()
        done = [(await environment.step({"answer": WRONG})).done for _ in range(4)]
        assert done == [False, False, False, True]
