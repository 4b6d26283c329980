"""Compiled parts of the simulation: whether and where a job can start, and its start."""

from __future__ import annotations

import math

from gangwise.core.jit import inlined_kernel, inner_kernel
from gangwise.jobs import distance, fit_kernels, kernels, rate_kernels
from gangwise.jobs.kernels import FreeDevices, Inputs, Rows, State, int64
from gangwise.jobs.queue_kernels import charge, hold, leave_ageing
from gangwise.jobs.rate_kernels import Beliefs, JobRequest

# ------------------------------------------------------------------------------- speeds and ends


@inlined_kernel
def rate_on(inputs: Inputs, state: State, j: int, n: int) -> float:
    """True rate of a task of job j on node n.

    It passes through no logarithm: jobs that end at one instant in exact arithmetic would end at
    two, by the last digit.
    """
    if inputs.rates.size == 0:
        return 1.0
    return float(inputs.rates[inputs.jobs[j].type, n] * state.factor[n] * inputs.noise[j])


@inlined_kernel
def speed_of(inputs: Inputs, state: State, j: int) -> float:
    """True rate of a running gang: that of its slowest piece."""
    if inputs.rates.size == 0:
        return 1.0
    p = inputs.jobs[j].piece_from
    slowest = kernels.NEVER
    # Tasks of a gang wait for one another in every step, so the slowest sets the pace of all.
    for i in range(p, p + state.jobs[j].pieces):
        slowest = min(slowest, rate_on(inputs, state, j, state.out[i].node))
    return slowest * together(inputs, state, j)


@inlined_kernel
def together(inputs: Inputs, state: State, j: int) -> float:
    """Share of its nodes' rate that running job j has, for their distance."""
    if inputs.distance is None:
        return 1.0
    low = inputs.jobs[j].piece_from
    high = low + state.jobs[j].pieces
    level = distance.level_of(inputs.distance.domain, state.out, low, high)
    return float(inputs.distance.factor[inputs.distance.of_job[j], level])


@inlined_kernel
def work_done(inputs: Inputs, state: State, j: int) -> float:
    """What running job j has done as far as the scheduler knows: seconds × the rate seen."""
    run = state.jobs[j]
    # Nothing is done while the start takes effect, nor while a restart reads its checkpoint.
    elapsed = max(state.at.now - run.begun - inputs.rules.latency - run.overhead, 0.0)
    return float(state.looks[j].before + elapsed * state.looks[j].seen)


@inlined_kernel
def schedule_end(inputs: Inputs, state: State, j: int) -> None:
    """Enter when job j will end as things are: by itself, or killed at its limit."""
    run = state.jobs[j]
    end = run.since + run.left / run.speed
    # Limits of work cut the work itself, when tables are made, so only limits of time end a run
    # here.
    if inputs.rules.enforced and not inputs.rules.limits_of_work:
        end = min(end, run.begun + inputs.rules.latency + inputs.jobs[j].limit)
    run.finish = end
    # The heap is not searched for the old entry: one whose time is no longer the job's is void.
    if state.at.ends == state.ends.size:
        drop_ends(state, j)
    state.at.ends = kernels.push(state.ends, state.at.ends, end, j)


@inner_kernel
def drop_ends(state: State, j: int) -> None:
    """Drop ends that no longer hold, and those of job j.

    An end that moved there and back has two entries, of which one is kept.
    """
    size = 0
    for i in range(state.ends.size):
        job = state.ends[i].item
        time = state.ends[i].time
        if state.jobs[job].phase == kernels.RUNNING and state.jobs[job].finish == time and job != j:
            size = kernels.push(state.ends, size, time, job)
            # Marks that the job has its entry; no time equals nan, so a second one is dropped.
            state.jobs[job].finish = math.nan
    # The marks give way to the times again.
    for i in range(size):
        state.jobs[state.ends[i].item].finish = state.ends[i].time
    state.at.ends = size


@inlined_kernel
def timer_holds(state: State, i: int) -> bool:
    """Entry i of the timers is of a job that runs or waits, and was not set anew since."""
    j = state.timers[i].item
    holds = state.jobs[j].phase == kernels.RUNNING or state.jobs[j].phase == kernels.WAITING
    return bool(holds and state.looks[j].timer == state.timers[i].time)


@inner_kernel
def set_timer(state: State, j: int, time: float) -> None:
    """Let job j be looked at then: to be measured if it runs, to be decided on if it waits."""
    at = state.at
    if at.timers == state.timers.size:  # drop entries that no longer hold
        size = 0
        for i in range(state.timers.size):
            if timer_holds(state, i):
                size = kernels.push(state.timers, size, state.timers[i].time, state.timers[i].item)
        at.timers = size
    # As with ends: only the entry with the time noted here counts.
    state.looks[j].timer = time
    at.timers = kernels.push(state.timers, at.timers, time, j)


@inlined_kernel
def change_use(inputs: Inputs, state: State, j: int, sign: float) -> None:
    """Whoever job j is charged to holds its devices from now on (sign 1), or no longer (−1)."""
    job = inputs.jobs[j]
    # Up to now the user had the old rate of use: that is settled before the rate changes.
    if state.users is not None and inputs.rules.queue == kernels.FAIR_SHARE:
        u = int64(job.user)
        charge(state.users, inputs.rules.half_life, state.at.now, u)
        state.users[u].rate += sign * (
            kernels.devices_of(inputs, j) / inputs.cluster.shapes[job.shape].total
        )
    elif state.standing is not None and inputs.rules.queue == kernels.MULTIFACTOR:
        hold(state.standing, j, sign, state.at.now)
        if sign > 0.0:
            leave_ageing(state.standing, j, state.at.now)


@inner_kernel
def expected_ends(inputs: Inputs, state: State, beliefs: Beliefs) -> None:
    """With limits of work: when running jobs are expected to end, anew."""
    for i in range(state.at.running):
        j = state.running[i]
        seconds = rate_kernels.remaining(beliefs, inputs.jobs[j].limit, work_done(inputs, state, j))
        state.jobs[j].expect = state.at.now + seconds / state.looks[j].seen
        kernels.put(state.order, i, state.jobs[j].expect, j)
    # `order` holds the running jobs alone from here on, none of it sorted.
    state.at.entered = state.at.running
    state.at.sorted = 0
    state.at.holes += 1


# ----------------------------------------------------------------------------------------- starts


@inner_kernel
def start(inputs: Inputs, state: State, j: int, count: int) -> None:
    """Job j begins on the ``count`` pieces tried."""
    job, run = inputs.jobs[j], state.jobs[j]
    at = state.at
    now = at.now
    fit_kernels.occupy(inputs, state, j, count)
    kernels.count_caps(inputs, state, j, kernels.USE_CAP)
    kernels.remove(state.words, state.summary, job.rank)
    at.waiting -= 1
    state.running[at.running] = j
    run.place = at.running
    at.running += 1
    run.phase = kernels.RUNNING
    run.attempts += 1
    run.begun = now
    # Work begins once the start has taken effect, and what was lost has been restored.
    run.since = now + inputs.rules.latency + run.overhead
    state.start[j] = min(state.start[j], now)
    run.speed = speed_of(inputs, state, j)
    schedule_end(inputs, state, j)
    run.expect = now + kernels.length(inputs, state, j)
    at.outlived = min(at.outlived, run.expect)
    # Until it is measured the job is taken to run as fast as was believed.
    if inputs.rules.choice == kernels.BY_RATE:
        p = job.piece_from
        state.looks[j].seen = math.exp(slowest(state, state.out, p, p + count) - at.slower)
        state.looks[j].timer = -1.0
    # Room for one more: what is void goes once it is more than half, so that it costs O(1) a start.
    if inputs.rules.backfilling != kernels.NO_BACKFILLING:
        if at.entered == state.order.size or at.entered > 2 * at.running + 64:
            drop_ended(state)
        kernels.put(state.order, at.entered, run.expect, j)
        at.entered += 1
    # A look is only entered where it may come: a job that ends before, with no event in between, is
    # measured at its end.
    if inputs.rules.choice == kernels.BY_RATE and inputs.rules.rates != kernels.LABELS:
        if now + inputs.rules.measured_after < run.finish or inputs.events.size > 0:
            set_timer(state, j, now + inputs.rules.measured_after)
        else:
            state.looks[j].timer = now + inputs.rules.measured_after
    change_use(inputs, state, j, 1.0)


@inlined_kernel
def slowest(state: State, pieces: Rows, low: int, high: int) -> float:
    """Least log rate in `state.mean` on the nodes of pieces[low:high]."""
    least = kernels.NEVER
    for i in range(low, high):
        least = min(least, state.mean[pieces[i].node])
    return least


@inner_kernel
def drop_ended(state: State) -> None:
    """Drop what is noted in `state.order` of jobs that no longer run."""
    at = state.at
    size = 0
    in_order = 0
    for i in range(at.entered):
        j = state.order[i].item
        if state.jobs[j].phase == kernels.RUNNING and state.jobs[j].expect == state.order[i].time:
            kernels.put(state.order, size, state.order[i].time, j)
            size += 1
            in_order += i < at.sorted
    at.entered = size
    at.sorted = in_order


@inlined_kernel
def put_in_order(state: State) -> None:
    """Let `state.order` hold the running jobs and no others, by expected end."""
    at = state.at
    if at.entered > at.running:  # else all that is noted holds
        drop_ended(state)
    if at.sorted < at.entered:
        kernels.merge_sort(state.order, state.spare_rows, at.sorted, at.entered)
        kernels.merge(state.order, state.spare_rows, 0, at.sorted, at.entered)
        at.sorted = at.entered


# ---------------------------------------------------------------------------------- where it fits


@inlined_kernel
def may_fit(inputs: Inputs, state: State, j: int) -> bool:
    """Whether job j may fit into what is free, without a look at nodes.

    What did not fit since devices were last given back (`epoch`) does not fit, nor do more tasks of
    its shape: devices were only taken since, and whether a gang fits depends on nothing else.
    """
    s, tasks = int64(inputs.jobs[j].shape), inputs.jobs[j].tasks
    if state.memo[s].fail_epoch == state.at.epoch and tasks >= state.memo[s].fail_tasks:
        return False
    for k in range(state.total.size):
        if tasks * inputs.cluster.demand[s, k] > state.total[k]:
            return False
    return True


@inlined_kernel
def find(inputs: Inputs, state: State, beliefs: Beliefs | None, j: int) -> int:
    """Try to place job j on what is free: pieces in `state.tried`, their number, 0 for no room."""
    s, count = int64(inputs.jobs[j].shape), 0
    state.at.tests += 1
    if may_fit(inputs, state, j):
        count = arrange(inputs, state, beliefs, state.room, j)
    # Groups are placed one after another, so that less free may change an earlier one's place and
    # let a later one in.
    if count == 0 and inputs.cluster.shapes[s].groups > 0:
        state.at.again = 1  # with less free, other nodes are taken first, and it may fit
    elif count == 0:
        memo, tasks = state.memo[s], int64(inputs.jobs[j].tasks)
        memo.fail_tasks = tasks if memo.fail_epoch < state.at.epoch else min(tasks, memo.fail_tasks)
        memo.fail_epoch = state.at.epoch
    return count


@inner_kernel
def arrange(
    inputs: Inputs, state: State, beliefs: Beliefs | None, room: FreeDevices, j: int
) -> int:
    """Place job j by the rule in a room: pieces in `state.tried`; 0 where it does not fit."""
    s = int64(inputs.jobs[j].shape)
    if inputs.cluster.groups is not None and inputs.cluster.shapes[s].groups > 0:
        count = arrange_groups(inputs, state, beliefs, room, j)
    else:
        count = arrange_alike(
            inputs, state, beliefs, room, j, s, int64(inputs.jobs[j].tasks), inputs.rules.choice
        )
    if beliefs is not None and beliefs.near is not None and inputs.rules.choice == kernels.BY_RATE:
        # `cost` is that of the last placement: of job j, or of the last of its groups.
        if inputs.cluster.shapes[s].groups > 0:
            costs_of(inputs, beliefs, j, fit_kernels.gang_size(inputs, j))
        level = distance.level_of(beliefs.near.domain, state.tried, int64(0), count)
        state.at.slower = beliefs.near.cost[level]
    return count


@inner_kernel
def believed_slowdown(
    inputs: Inputs, beliefs: Beliefs, j: int, pieces: Rows, low: int, high: int
) -> float:
    """Log slowdown of job j by the distance of pieces[low:high], as believed."""
    costs_of(inputs, beliefs, j, fit_kernels.gang_size(inputs, j))
    return float(beliefs.near.cost[distance.level_of(beliefs.near.domain, pieces, low, high)])


@inner_kernel
def costs_of(inputs: Inputs, beliefs: Beliefs, j: int, tasks: int) -> None:
    """Put the log slowdown of so many tasks of job j at each level in `beliefs.near.cost`."""
    if inputs.rules.rates != kernels.ORACLE:
        distance.believe_costs(beliefs.near, int64(inputs.jobs[j].type), tasks)
        return
    for h in range(beliefs.near.cost.size):
        beliefs.near.cost[h] = 0.0
        if inputs.distance is not None:
            c = inputs.distance.of_job[j]
            beliefs.near.cost[h] = -math.log(inputs.distance.factor[c, h])


@inner_kernel
def arrange_groups(
    inputs: Inputs, state: State, beliefs: Beliefs | None, room: FreeDevices, j: int
) -> int:
    """Place the groups of job j one after another by the rule.

    Or else each on the first nodes, or else in any way. Each takes its devices before the next is
    placed; all are given back at the end.
    """
    s = int64(inputs.jobs[j].shape)
    low, choice = inputs.cluster.shapes[s].groups_from, int64(inputs.rules.choice)
    main, states = low, int64(0)
    # Three ways, each more thorough: by the rule, by first-fit, and by search. The first that
    # places all counts.
    while True:
        placed, count = 0, 0
        if choice == kernels.ALL_WAYS:
            if not fit_kernels.search(inputs.cluster, state.ways, room, s):
                return 0
            main, states = fit_kernels.main_group(inputs.cluster, room, s)
        for m in range(low, low + inputs.cluster.shapes[s].groups):
            part, tasks = (
                int64(inputs.cluster.groups[m].shape),
                int64(inputs.cluster.groups[m].tasks),
            )
            if states > 0:
                count = fit_kernels.group_chosen(inputs.cluster, state, room, s, int64(main), m)
            else:
                count = arrange_alike(inputs, state, beliefs, room, j, part, tasks, choice)
            if count == 0:
                break
            # The next group finds these devices taken.
            for i in range(count):
                tried = state.tried[i]
                fit_kernels.take(
                    inputs.cluster,
                    room,
                    part,
                    int64(tried.node),
                    int64(tried.tasks),
                    tried.mask,
                    kernels.TAKE,
                )
                kernels.put_piece(
                    state.grouped, placed, int64(tried.node), int64(tried.tasks), int64(tried.mask)
                )
                placed += 1
        # A trial: whoever starts the job takes the pieces again.
        for i in range(placed):
            fit_kernels.take_piece(inputs.cluster, room, s, state.grouped, 0, i, kernels.GIVE_BACK)
        if count > 0:
            for i in range(placed):
                piece = state.grouped[i]
                kernels.put_piece(
                    state.tried, i, int64(piece.node), int64(piece.tasks), int64(piece.mask)
                )
            return placed
        # The rule did not do: first-fit next, and behind it the search.
        choice = int64(kernels.ALL_WAYS if choice == kernels.FIRST_FIT else kernels.FIRST_FIT)


@inner_kernel
def arrange_alike(
    inputs: Inputs,
    state: State,
    beliefs: Beliefs | None,
    room: FreeDevices,
    j: int,
    s: int,
    tasks: int,
    choice: int,
) -> int:
    """Place so many tasks of shape s of job j: pieces in `state.tried`; 0 where they do not fit."""
    if inputs.cluster.devices is not None and choice == kernels.FGD:
        count = fit_kernels.place_fgd(inputs.cluster, state, room, s, tasks)
    elif choice == kernels.BEST_FIT:
        count = fit_kernels.place_tightest(inputs.cluster, state, room, s, tasks)
    elif inputs.topology is not None and choice == kernels.BY_TOPOLOGY:
        count = place_in_domains(inputs, state, room, s, tasks)
    else:
        count = fit_kernels.gather(inputs.cluster, state, room, s, tasks, choice)
        # First-fit takes the nodes gathered as they come; the others put them in an order of worth.
        if choice == kernels.FIRST_FIT:
            count = fit_kernels.place_first(state, tasks, count)
        elif count > 0:
            if beliefs is not None and choice == kernels.BY_RATE:
                value_nodes(inputs, state, beliefs, room, j, s, tasks)
            count = place_by_worth(inputs, state, beliefs, room, j, s, tasks, count)
    shape = inputs.cluster.shapes[s]
    if inputs.cluster.devices is not None and count > 0 and shape.fraction + shape.whole > 0:
        count = fit_kernels.tell_apart(inputs.cluster, state, room, s, count, choice)
    return count


@inner_kernel
def place_in_domains(inputs: Inputs, state: State, room: FreeDevices, s: int, tasks: int) -> int:
    """Kueue's topology-aware scheduling. Gives pieces, 0 for none."""
    topology, total, count = inputs.topology, int64(0), int64(0)
    allowed = inputs.cluster.allowed[inputs.cluster.shapes[s].constraint]
    for n in range(allowed.size):
        topology.fits[n] = fit_kernels.fits(inputs.cluster, room, s, n) if allowed[n] else 0
        total += topology.fits[n]
    if total < tasks or not distance.choose_domains(topology, tasks):
        return 0
    for n in range(allowed.size):
        if topology.taken[n] > 0:
            kernels.put_piece(state.tried, count, n, topology.taken[n], int64(0))
            count += 1
    return int(count)


@inlined_kernel
def place_by_worth(
    inputs: Inputs,
    state: State,
    beliefs: Beliefs | None,
    room: FreeDevices,
    j: int,
    s: int,
    tasks: int,
    count: int,
) -> int:
    """Emptiest nodes, or those of largest worth; near one another where distance counts."""
    choice = int64(inputs.rules.choice)
    if beliefs is not None and beliefs.near is not None and choice == kernels.BY_RATE:
        costs_of(inputs, beliefs, j, tasks)
        return distance.place_near(beliefs.near, state, tasks, count)
    return fit_kernels.place_best(inputs.cluster, state, room, s, tasks, count, choice)


@inner_kernel
def rates_of(inputs: Inputs, state: State, beliefs: Beliefs, j: int) -> None:
    """Fill `state.mean` and `state.sd` [N] with what is believed of job j's log rate."""
    l = int64(inputs.jobs[j].type)
    if inputs.rules.rates == kernels.LEARNED:
        rate_kernels.believe(beliefs, l, state.at.now, state.mean, state.sd)
    else:
        for n in range(state.sd.size):
            state.sd[n] = 0.0
            if inputs.rules.rates == kernels.LABELS:
                state.mean[n] = inputs.labels[l, n]
            # The oracle sees the true rates, with what nodes have gained or lost since.
            elif inputs.log_rates.size > 0:
                state.mean[n] = inputs.log_rates[l, n] + state.log_factor[n]
            else:
                state.mean[n] = 0.0


@inlined_kernel
def value_nodes(
    inputs: Inputs, state: State, beliefs: Beliefs, room: FreeDevices, j: int, s: int, tasks: int
) -> None:
    """Fill `state.mean`, `state.sd` and `state.worth` [N] for a placement of tasks of job j."""
    job = inputs.jobs[j]
    rates_of(inputs, state, beliefs, j)
    kind = inputs.cluster.shapes[s].dominant
    # What is spare on each node, in devices of the type that a task has most of.
    for n in range(state.spare.size):
        state.spare[n] = room.free[n, kind] / 1000.0
    size = tasks * inputs.cluster.demand[s, kind] / 1000.0
    rate_kernels.score(
        beliefs,
        JobRequest(int64(job.type), size, job.limit),
        state.mean,
        state.sd,
        state.spare,
        state.worth,
    )


@inlined_kernel
def asked_by(inputs: Inputs, j: int) -> JobRequest:
    """What job j asks the learner for."""
    job = inputs.jobs[j]
    s = int64(job.shape)
    devices = inputs.cluster.demand[s, inputs.cluster.shapes[s].dominant] / 1000.0
    return JobRequest(int64(job.type), job.tasks * devices, job.limit)


@inlined_kernel
def holds_off(inputs: Inputs, state: State, beliefs: Beliefs | None, j: int, count: int) -> bool:
    """Job j could start on the pieces tried and had better wait for others."""
    if beliefs is None or not inputs.rules.waits:
        return False
    job = inputs.jobs[j]
    now = state.at.now
    # The gang runs at the rate of its slowest node: what it would gain is reckoned from that.
    slow = state.tried[0].node
    for i in range(1, count):
        if state.mean[state.tried[i].node] < state.mean[slow]:
            slow = state.tried[i].node
    updated = beliefs.release_time[0]
    allowed = inputs.cluster.allowed[inputs.cluster.shapes[job.shape].constraint]
    waited = now - job.submit
    seconds = rate_kernels.wait(
        beliefs, asked_by(inputs, j), slow, state.mean, allowed, state.at.waiting, waited, now
    )
    if beliefs.release_time[0] != updated:
        state.at.change += 1  # prices faded: the choice may pick other nodes
    if beliefs.near is not None and seconds <= 0.0 and waits_near(inputs, state, beliefs, j, count):
        seconds = beliefs.constants.patience - waited
    if seconds <= 0.0:
        return False
    # A timer within the wait is there already: another would only bring a round more.
    if not now < state.looks[j].timer <= now + seconds:
        set_timer(state, j, now + seconds)
    return True


@inner_kernel
def waits_near(inputs: Inputs, state: State, beliefs: Beliefs, j: int, count: int) -> bool:
    """Whether job j had better wait for nodes nearer than the pieces tried.

    It gains E[work] / rate · (slowdown here - slowdown there), and waits for the devices that the
    best domain lacks: price · (1 + crowd · waiting) · devices / (the domain's share of releases).
    """
    near, c, s = beliefs.near, beliefs.constants, int64(inputs.jobs[j].shape)
    tasks, level = (
        int64(inputs.jobs[j].tasks),
        distance.level_of(near.domain, state.tried, 0, count),
    )
    released = 0.0
    for g in range(beliefs.release.size):
        released += beliefs.release[g]
    waited = state.at.now - inputs.jobs[j].submit
    if level == 0 or released <= 0.0 or waited > c.patience - 1.0:
        return False
    slow = slowest(state, state.tried, int64(0), count)
    alone = math.exp(-slow) * rate_kernels.remaining(beliefs, inputs.jobs[j].limit, 0.0)
    devices = inputs.cluster.demand[s, inputs.cluster.shapes[s].dominant] / 1000.0
    # Devices of nearer nodes come free at the rate of releases, and others wait for them too.
    dear = c.price * (1.0 + c.crowd * state.at.waiting) * devices / released
    # Each level that is nearer than what there is: worth the wait, if some domain of it can hold
    # the gang.
    for h in range(level):
        gain = alone * (math.exp(near.cost[level]) - math.exp(near.cost[h]))
        if gain > 0.999 * dear:  # a domain lacks a task or more
            total = count_domains(inputs, state, near, h, s, tasks)
            for d in range(near.order.size):
                lacks = tasks - near.held[d]
                if (
                    near.order[d] >= tasks
                    and lacks > 0
                    and dear * lacks * total / near.order[d] < gain
                ):
                    return True
    return False


@inner_kernel
def count_domains(
    inputs: Inputs, state: State, near: distance.NearBeliefs, h: int, s: int, tasks: int
) -> int:
    """Count in each domain of a level how many of so many tasks of a shape fit.

    In `held` those that fit now, in `order` those that would if it were empty; gives the sum of the
    latter.
    """
    cluster, total = inputs.cluster, int64(0)
    near.held[:] = 0
    near.order[:] = 0
    for n in range(near.order.size):
        if cluster.allowed[cluster.shapes[s].constraint, n] and state.up[n]:
            d = int64(n) if h == 0 else near.domain[h - 1, n]
            most = int64(min(cluster.shapes[s].per_node, tasks))
            holds = most
            for k in range(cluster.demand.shape[1]):
                if cluster.demand[s, k] > 0:
                    # Rounded down as in `fits_of`, which costs less than to divide.
                    quotient = (cluster.capacity[n, k] + 0.5) * cluster.per_task[s, k]
                    holds = min(holds, int64(quotient))
            near.held[d] += fit_kernels.fits_of(cluster, state.room, s, n, most)
            near.order[d] += holds
            total += holds
    return int(total)


@inner_kernel
def notify_submitted(inputs: Inputs, state: State, beliefs: Beliefs, j: int) -> None:
    """Let the learner know what job j, which has just been submitted, asks for."""
    # `SHARED` looks up the rates by itself.
    if beliefs.kind != rate_kernels.SHARED:
        rates_of(inputs, state, beliefs, j)
    rate_kernels.submitted(beliefs, asked_by(inputs, j), state.mean, state.at.now)
