"""Counts the parts of DeepSpeed that Transformers, Accelerate, Lightning, PEFT and TRL use, and checks that libds.torch has each or says
what it has instead (part surface of torch_host.py). Names of `deepspeed` and members of the engine are read from syntax trees.

Further arguments are folders of programs, such as a clone of DeepSpeedExamples; without one, a list of the names that these use is checked.
"""
import ast
import collections
import importlib
import importlib.util
import os
import sys

import torch

import libds.torch
from torch_host import check

PACKAGES = {"Transformers": ["transformers"], "Accelerate": ["accelerate"], "Lightning": ["pytorch_lightning", "lightning_fabric"],
            "PEFT": ["peft"], "TRL": ["trl"]}
# Names under which these programs keep an engine, besides those to which they assign the result of deepspeed.initialize.
ENGINES = {"engine", "model_engine", "deepspeed_engine", "ds_engine", "deepspeed"}
# Names that 162 programs of DeepSpeedExamples use, counted with this file in their sources of 2026-03.
EXAMPLES = """
DeepSpeedConfig DeepSpeedTransformerConfig DeepSpeedTransformerLayer OnDevice add_config_arguments get_accelerator init_distributed
init_inference initialize replace_transformer_layer tp_model_init
accelerator.get_accelerator comm.TorchBackend comm.all_reduce comm.all_to_all_single comm.allgather_fn comm.barrier comm.broadcast
comm.destroy_process_group comm.get_local_rank comm.get_rank comm.get_world_size comm.has_all_gather_into_tensor comm.init_distributed
comm.irecv comm.is_initialized comm.isend comm.recv comm.send compile.passes.offload_adam_states compile.passes.prefetch
compile.passes.selective_gather compile.passes.sp_compile compile.passes.zero3_compile compression.compress.init_compression
compression.compress.redundancy_clean compression.helper constants.CROSS_RANK constants.CROSS_SIZE constants.TORCH_DISTRIBUTED_DEFAULT_PORT
inference.DeepSpeedTPConfig inference.RaggedInferenceEngineConfig inference.v2.ragged io.FastFileWriter io.FastFileWriterConfig
io.MockFileWriter io.PyFileWriter module_inject.replace_policy moe.layer.MoE moe.utils.split_params_into_different_moe_groups_for_optimizer
ops.adam.DeepSpeedCPUAdam ops.adam.FusedAdam ops.op_builder.AsyncIOBuilder ops.op_builder.GDSBuilder
ops.sparse_attention.SparseAttentionUtils pipe.PipelineModule runtime.config.LAMB_OPTIMIZER runtime.config.ONEBIT_LAMB_OPTIMIZER
runtime.data_pipeline.data_routing runtime.data_pipeline.data_sampling runtime.domino.transformer runtime.fp16.fused_optimizer
runtime.fp16.unfused_optimizer runtime.utils.see_memory_usage runtime.utils.set_random_seed runtime.zero.offload_config.OffloadDeviceEnum
runtime.zero.partition_parameters.ZeroParamStatus sequence.layer.DistributedAttention utils.RepeatingLoader utils.logger.info
utils.logging.logger.info utils.set_z3_leaf_modules zero.GatheredParameters zero.Init
"""
EXAMPLES_MEMBERS = """backward step train eval load_state_dict named_parameters config to parameters save_checkpoint module
gradient_accumulation_steps device random_ltd_scheduler load_checkpoint train_micro_batch_size_per_gpu local_rank apply half
disable_need_reduction enable_need_reduction destroy cuda tput_timer fp16_enabled is_gradient_accumulation_boundary optimizer_name train_batch
state_dict offload_states reload_states bfloat16_enabled set_data_post_process_func data_parallel_group lr_scheduler steps_per_print get_lr
wall_clock_breakdown"""
# Members of the engine without a counterpart: of pipelines, random-LTD, offload at run time, and of old versions of DeepSpeed.
LACKING = {"train_batch", "random_ltd_scheduler", "offload_states", "reload_states", "set_data_post_process_func", "disable_need_reduction",
           "enable_need_reduction", "data_parallel_group"}
# Members of models that such variables contain, too.
OF_THE_MODEL = {"get_base_model", "generation_config", "is_gradient_checkpointing", "gradient_checkpointing_disable",
                "gradient_checkpointing_enable", "init_bert_weights", "lang_decoder", "vis_encoder", "rwtranrsformer", "rwtransformer",
                "features", "resize_token_embeddings", "model"}


def dotted(node):
    """Returns the names of an expression a.b.c, or None."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [node.id, *names[::-1]] if isinstance(node, ast.Name) else None


class Uses(ast.NodeVisitor):
    """The uses of one file."""

    def __init__(self, tree):
        self.names, self.members = collections.Counter(), collections.Counter()
        self._local = {}  # local name: dotted name
        self._engines = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for one in node.names:
                    if one.name.split(".")[0] == "deepspeed":
                        self.names[one.name] += 1
                        self._local[one.asname or "deepspeed"] = one.name if one.asname else "deepspeed"
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").split(".")[0] == "deepspeed":
                for one in node.names:
                    self.names[f"{node.module}.{one.name}"] += 1
                    self._local[one.asname or one.name] = f"{node.module}.{one.name}"
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and self._full(node.value.func) == "deepspeed.initialize":
                target = node.targets[0]
                first = target.elts[0] if isinstance(target, ast.Tuple) else target
                if isinstance(first, (ast.Name, ast.Attribute)):
                    self._engines.add(ast.unparse(first))
        self.visit(tree)

    def _full(self, node):
        names = dotted(node)
        return ".".join([self._local[names[0]], *names[1:]]) if names and names[0] in self._local else None

    def visit_Attribute(self, node):
        full = self._full(node)
        if full is not None:
            self.names[full] += 1
            return
        owner = ast.unparse(node.value)
        if owner in self._engines or (owner.split(".")[-1] in ENGINES and self._full(node.value) is None):
            self.members[node.attr] += 1
        self.generic_visit(node)


def uses_of(folder):
    """Counts the uses of all files of a folder that mention deepspeed."""
    names, members = collections.Counter(), collections.Counter()
    for root, _, files in os.walk(folder):
        for file in files:
            if file.endswith(".py"):
                with open(os.path.join(root, file), encoding="utf-8", errors="replace") as source:
                    text = source.read()
                if "deepspeed" in text.lower():
                    try:
                        found = Uses(ast.parse(text))
                    except SyntaxError:
                        continue  # such a file cannot run
                    names += found.names
                    members += found.members
    return names, members


def answer(name):
    """Returns the shim's answer to a name: "has" if it has the name, "refers" if it says what libds has instead, or anything else."""
    parts = name.split(".")
    try:
        value = importlib.import_module(parts[0])
        for at, part in enumerate(parts[1:], 2):
            try:
                value = getattr(value, part)
            except AttributeError as missing:
                if "is not part of libds.torch" not in str(missing) or not hasattr(value, "__path__"):
                    raise
                value = importlib.import_module(".".join(parts[:at]))
        return "has"
    except (AttributeError, ModuleNotFoundError) as error:
        return "refers" if "is not part of libds.torch: " in str(error) else f"{type(error).__name__}: {error}"


def member(engine, name):
    """Returns the engine's answer to a member."""
    try:
        getattr(engine, name)
        return "has"
    except AttributeError as error:
        return "refers" if name in LACKING and "moving-from-deepspeed.md" in str(error) else f"lacks: {error}"


def table(what, user, found, answers):
    """Prints a line for each name, and checks the answers."""
    good = 0
    for name, count in sorted(found.items()):
        print(f"    {answers[name]:7} {count:4} {name}", file=sys.stderr)
        good += answers[name] in ("has", "refers")
    has = sum(answer == "has" for answer in answers.values())
    check(f"{user}: {what}", good == len(found), f"{len(found)} names; libds.torch has {has} and refers to another way for {good - has}")


def surface(*folders):
    libds.torch.as_deepspeed()
    counted = {}
    for user, packages in PACKAGES.items():
        names, members = collections.Counter(), collections.Counter()
        for package in packages:
            for folder in importlib.util.find_spec(package).submodule_search_locations:
                found = uses_of(folder)
                names += found[0]
                members += found[1]
        check(f"{user} uses names of deepspeed", bool(names))
        counted[user] = names, members
    if folders:
        counted.update({folder: uses_of(folder) for folder in folders})
    else:
        names = collections.Counter(f"deepspeed.{name}" for name in EXAMPLES.split())
        counted["DeepSpeedExamples"] = names, collections.Counter(EXAMPLES_MEMBERS.split())
    engine, *_ = libds.torch.initialize(model=torch.nn.Linear(2, 2), config={"train_micro_batch_size_per_gpu": 1})
    for user, (names, members) in counted.items():
        table("names", user, names, {name: answer(name) for name in names})
        own = collections.Counter({name: count for name, count in members.items() if name not in OF_THE_MODEL})
        table("members of the engine", user, own, {name: member(engine, name) for name in own})
    engine.destroy()
