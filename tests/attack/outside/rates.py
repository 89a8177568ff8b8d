"""Computes learning rates by the definitions of DeepSpeed 0.19 (lr_schedules.py) and Transformers 5 (optimization.py)."""
import math


def per_group(value, group):
    return value[min(group, len(value) - 1)] if isinstance(value, list) else value


def deepspeed_warmup(params, i, steps):
    if i >= steps:
        return 1.0
    return i / steps if params.get("warmup_type", "log") == "linear" else math.log(i + 1) / math.log(steps)


def one_cycle(params, i, low, high):
    """Returns (rate, first beta) of DeepSpeed's OneCycle at iteration i."""
    least, most = params.get("cycle_min_mom", 0.8), params.get("cycle_max_mom", 0.9)
    if i < 0:
        return low, least
    first = params.get("cycle_first_step_size", 2000)
    second = params.get("cycle_second_step_size", first)
    whole = first + second
    if i >= whole:
        size = params.get("decay_step_size", 0)
        intervals = (i - whole + 1) / size if size else 0.0
        return low / (1 + params.get("decay_lr_rate", 0) * intervals), most * (1 + params.get("decay_mom_rate", 0) * intervals)
    stairs = params.get("cycle_first_stair_count", 0)
    stairs = stairs, params.get("cycle_second_stair_count", stairs)
    at = (i + 1) % whole
    if any(stairs):
        up = at <= first
        place = at / first if up else (whole - at) / second
        count = stairs[0] if up else stairs[1]
        share = math.floor(place * count) / count if count else None
    else:
        share = None
    if share is None:
        cycle = math.floor(1 + (i + 1) / whole)
        x = 1 + (i + 1) / whole - cycle
        ratio = first / whole
        share = x / ratio if x <= ratio else (x - 1) / (ratio - 1)
    return low + (high - low) * share, most - (most - least) * share


def wsd(params, k):
    total, warm = params["total_num_steps"], params.get("warmup_num_steps", 0)
    decay = params.get("decay_num_steps", max(1, total // 10))
    least, stable = params.get("min_lr_ratio", 0.0), total - warm - decay
    shape = {"linear": lambda x: 1 - x, "1-sqrt": lambda x: 1 - math.sqrt(x),
             "cosine": lambda x: 0.5 * (1 + math.cos(math.pi * 2 * params.get("num_cycles", 0.5) * x))}
    if k < warm:
        x = k / max(1, warm)
        factor = {"linear": x, "cosine": 0.5 * (1 - math.cos(math.pi * x)), "1-sqrt": 1 - math.sqrt(1 - x)}[params.get("warmup_type", "linear")]
    elif k < warm + stable:
        return 1.0
    elif k < warm + stable + decay:
        factor = shape[params["decay_type"]]((k - warm - stable) / max(1, decay))
    else:
        return least
    return max(0.0, factor * (1 - least) + least)


def rate(scheduler, group, base, k):
    """Returns (rate, first beta or None) of a group with rate `base` in the step after k steps."""
    if not scheduler:
        return base, None
    kind, params, i = scheduler["type"], scheduler["params"], k - 1
    if kind in ("WarmupLR", "WarmupDecayLR"):
        low = per_group(params.get("warmup_min_lr", 0.0), group)
        high = per_group(params.get("warmup_max_lr", base if kind == "WarmupLR" else 0.001), group)
        steps = max(2, params.get("warmup_num_steps", 1000))
        if i < 0:
            return low, None
        share = deepspeed_warmup(params, i, steps)
        if kind == "WarmupDecayLR" and i >= steps:
            total = params["total_num_steps"]
            share = max(0.0, (total - i) / max(1.0, total - steps))
        return low + (high - low) * share, None
    if kind == "WarmupCosineLR":
        steps, total = max(2, params.get("warmup_num_steps", 1000)), params["total_num_steps"]
        if i < 0:
            return 0.0, None
        if i < steps:
            least = params.get("warmup_min_ratio", 0.0)
            return base * (least + (1 - least) * deepspeed_warmup(params, i, steps)), None
        least = params.get("cos_min_ratio", 1e-4)
        x = min(1.0, (i - steps + 1) / max(1, total - steps))
        return base * max(0.0, least + (1 - least) * (1 + math.cos(math.pi * x)) / 2), None
    if kind == "OneCycle":
        value, beta = one_cycle(params, i, per_group(params["cycle_min_lr"], group), per_group(params["cycle_max_lr"], group))
        return value, beta if params.get("cycle_momentum", True) else None
    if kind == "LRRangeTest":
        intervals = k / params.get("lr_range_test_step_size", 2000)
        if params.get("lr_range_test_staircase", False):
            intervals = math.floor(intervals)
        low = per_group(params.get("lr_range_test_min_lr", 1e-3), group)
        return low * (1 + params.get("lr_range_test_step_rate", 1.0) * intervals), None
    if kind == "WSD":
        return base * wsd(params, k), None
    warm = params.get("warmup_num_steps", 0)
    if k < warm:
        return base * k / max(1, warm), None
    if kind == "constant":
        return base, None
    total, least = params["total_num_steps"], params.get("min_lr_ratio", 0.0)
    # After the end of the schedule, the rate keeps its last value (docs/reference/config.md).
    x = min(1.0, (k - warm) / max(1, total - warm))
    if kind == "linear":
        return base * (least + (1 - least) * (1 - x)), None
    return base * (least + (1 - least) * 0.5 * (1 + math.cos(math.pi * 2 * params.get("num_cycles", 0.5) * x))), None


def draw(rng, steps, groups, base):
    """Returns a random scheduler section, or None."""
    kind = rng.choice(["none", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "OneCycle", "LRRangeTest", "constant", "linear", "cosine", "WSD"])
    if kind == "none":
        return None
    number = lambda: base * rng.choice([0.1, 0.5, 1.0, 2.0])
    value = lambda: [number() for _ in range(groups)] if rng.random() < 0.3 else number()
    warm, total, params = rng.randint(1, 5), rng.randint(max(2, steps - 3), steps + 4), {}
    if kind in ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR"):
        params = {"warmup_num_steps": warm, "warmup_type": rng.choice(["log", "linear"])}
        if kind == "WarmupCosineLR":
            params |= {"warmup_min_ratio": rng.choice([0, 0.1]), "cos_min_ratio": rng.choice([0, 0.2])}
        else:
            params["warmup_min_lr"] = rng.choice([0, value()])
            if rng.random() < 0.5 and groups == 1 or kind == "WarmupDecayLR":
                params["warmup_max_lr"] = value()
        if kind != "WarmupLR":
            params["total_num_steps"] = total
    elif kind == "OneCycle":
        params = {"cycle_min_lr": value(), "cycle_max_lr": value(), "cycle_first_step_size": rng.randint(1, 4),
                  "cycle_momentum": rng.random() < 0.6}
        if rng.random() < 0.5:
            params["cycle_second_step_size"] = rng.randint(1, 4)
        if rng.random() < 0.4:
            params["cycle_first_stair_count"] = rng.randint(0, 3)
        if rng.random() < 0.3:
            params["cycle_second_stair_count"] = rng.randint(0, 3)
        if rng.random() < 0.5:
            params |= {"decay_step_size": rng.randint(1, 3), "decay_lr_rate": rng.choice([0, 0.5]), "decay_mom_rate": rng.choice([0, 0.01])}
    elif kind == "LRRangeTest":
        params = {"lr_range_test_min_lr": value(), "lr_range_test_step_size": rng.randint(1, 4),
                  "lr_range_test_step_rate": rng.choice([0.5, 1, 3]), "lr_range_test_staircase": rng.random() < 0.5}
    else:
        params["warmup_num_steps"] = rng.randint(0, 4)
        if kind != "constant":
            params |= {"total_num_steps": max(total, params["warmup_num_steps"] + 1), "min_lr_ratio": rng.choice([0, 0.1, 0.5])}
        if kind == "WSD":
            room = params["total_num_steps"] - params["warmup_num_steps"]
            params |= {"decay_num_steps": rng.randint(1, room), "decay_type": rng.choice(["linear", "cosine", "1-sqrt"])}
            if rng.random() < 0.3:
                params["warmup_type"] = rng.choice(["linear", "cosine", "1-sqrt"])
        if (kind == "cosine" or params.get("decay_type") == "cosine") and rng.random() < 0.3:
            params["num_cycles"] = rng.choice([0.5, 0.25, 1.0])
    return {"type": kind, "params": params}
