"""Write the page of Slurm's settings: python docs/slurm_settings.py"""

from __future__ import annotations

from pathlib import Path

from gangwise.sites.slurm_files import settings

HEAD = """# Slurm's settings

What a replay makes of every setting of Slurm 22.05 to 25.05, by the entry in which it stands.
*Played*: it changes who starts, when or where, as in Slurm. *Named*: a replay that finds it set
says so with file and line, with what it does instead; values behind it change nothing. *Not about
scheduling*: it decides none of these, or the accounting log shows its effect already. A setting
that stands nowhere here is called unknown. Written by `python docs/slurm_settings.py`; see
[Slurm's rules](how-to/slurm-rules.md).
"""
ENTRIES = {
    "config": "slurm.conf, `scontrol show config`",
    "SchedulerParameters": "SchedulerParameters",
    "PriorityFlags": "PriorityFlags",
    "SelectTypeParameters": "SelectTypeParameters",
    "partition": "Partitions",
    "node": "Nodes",
    "nodeset": "NodeSet",
    "switch": "topology.conf",
    "qos": "QOS, `sacctmgr show qos`",
    "assoc": "Associations, `sacctmgr show assoc`",
    "reservation": "Reservations, `scontrol show res`",
    "event": "Events of nodes, `sacctmgr show event`",
}


def page() -> str:
    known, parts = settings(), [HEAD]
    for kind, title in ENTRIES.items():
        of, old = known[kind], known[kind]["alias"]
        parts.append(f"\n## {title}\n")
        if played := sorted(of["modelled"], key=str.lower):
            parts.append("\nPlayed: " + ", ".join(f"`{n}`" for n in played) + ".\n")
        rows = {}
        for name, (why, *harmless) in of["not_modelled"].items():
            same = ", ".join(f"`{value}`" for value in harmless if value)
            rows[name] = why + f" ({same})" * bool(same)
        rows |= {name: "as " + ", ".join(f"`{n}`" for n in new) for name, new in old.items()}
        if rows:
            parts.append("\n| named | what is done instead |\n|---|---|\n")
        for name in sorted(rows, key=str.lower):
            parts.append(f"| `{name}` | {rows[name]} |\n")
        if rest := sorted(of["irrelevant"], key=str.lower):
            parts.append("\nNot about scheduling: " + ", ".join(f"`{n}`" for n in rest) + ".\n")
    return "".join(parts)


if __name__ == "__main__":
    Path(__file__).with_suffix(".md").write_text(page(), encoding="utf-8")
