"""Completion scripts for bash, zsh and fish, made from the grammar itself."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import attrs

from nedura.commands import build_parser, each_parser
from nedura.config_keys import KEYS
from nedura.skin_data import BUILT_IN
from nedura_cli.output import Output

__all__ = ["completion", "nodes", "script"]

PROFILES = (
    'h="${NEDURA_HOME:-$HOME/.nedura}"; case "$h" in (*/profiles/*) h="${h%/profiles/*}" ;; esac; '
    'ls -1 "$h/profiles" 2>/dev/null'
)
"""Shell code that prints the profiles of the root, from whatever profile it runs."""

ON_PROFILES = " | ".join(
    f'"profile {verb}"' for verb in ("use", "show", "delete", "export", "rename", "describe", "alias")
)
"""The commands whose argument is a profile, as a pattern of `case`."""

A_PROFILE = ("a profile",)
"""Stands for the names of the profiles there are."""


@attrs.frozen(kw_only=True)
class Node:
    """One command and what may follow it.

    Attributes:
        path: its words.
        words: subcommands and choices, each with what it does.
        flags: its options, each with what it does.
        values: those of its options that take a value, each with what is known of it: words, none (a file, or anything), or `A_PROFILE`.
    """

    path: tuple[str, ...]
    words: tuple[tuple[str, str], ...]
    flags: tuple[tuple[str, str], ...]
    values: tuple[tuple[str, tuple[str, ...]], ...] = ()


def _values(path: tuple[str, ...]) -> list[tuple[str, str]]:
    """Words that the grammar leaves open and we know all the same."""
    match path:
        case ("config", "get" | "set"):
            return [(name, key.about) for name, key in KEYS.items() if "*" not in name]
        case ("skin", "use" | "show"):
            return [(name, str(skin["description"])) for name, skin in BUILT_IN.items()]
        case _:
            return []


def _option_values(path: tuple[str, ...], action: argparse.Action) -> tuple[str, ...]:
    """What an option's value may be, as far as we know it."""
    match (*path, action.option_strings[-1]):
        case _ if action.choices is not None:
            return tuple(str(choice) for choice in action.choices)
        case ("update", "--channel" | "--set-channel"):
            return KEYS["update.installs.*.channel"].choices
        case ("skin", _, "--from" | "--skin"):
            return tuple(BUILT_IN)
        case (*_, "--profile" | "--clone-from"):
            return A_PROFILE
        case _:
            return ()


def completion(args: argparse.Namespace, output: Output) -> int:
    """Print a script."""
    output.line(script(args.shell))
    return 0


def nodes() -> Iterator[Node]:
    """Every command of the grammar."""
    for path, parser in each_parser(build_parser()):
        words: list[tuple[str, str]] = []
        flags: list[tuple[str, str]] = []
        values: list[tuple[str, tuple[str, ...]]] = []
        for action in parser._actions:
            about = "" if action.help in (None, argparse.SUPPRESS) else str(action.help)
            if isinstance(action, argparse._SubParsersAction):
                words += [(str(one.dest), str(one.help or "")) for one in action._choices_actions]
            elif action.option_strings and action.help != argparse.SUPPRESS:
                flags += [(flag, about) for flag in action.option_strings]
                if action.nargs != 0:
                    values += [(flag, _option_values(path, action)) for flag in action.option_strings]
            elif not action.option_strings and action.choices:
                words += [(str(choice), "") for choice in action.choices]
        words += _values(path)
        yield Node(path=path, words=tuple(words), flags=tuple(flags), values=tuple(values))


def script(shell: str) -> str:
    """The completion script of a shell."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]()


def _cases(indent: str) -> str:
    """One `case` arm for each command: its words, else its options."""
    lines = []
    for node in nodes():
        words = " ".join(word for word, _ in node.words)
        flags = " ".join(flag for flag, _ in node.flags)
        lines.append(f'{indent}"{" ".join(node.path)}") words="{words}"; flags="{flags}" ;;')
    return "\n".join(lines)


def _taking() -> str:
    """Every option that takes a value, behind its command, as a pattern of `case`."""
    return " | ".join(f'"{" ".join(node.path)} {flag}"' for node in nodes() for flag, _ in node.values)


def _value_cases(indent: str) -> str:
    """One `case` arm for each option whose value is known; the others fall through to the last: no word of ours."""
    lines = [
        f'{indent}"{" ".join(node.path)} {flag}") words="{_words_of(known)}" ;;'
        for node in nodes()
        for flag, known in node.values
        if known
    ]
    return "\n".join([*lines, f'{indent}*) words="" ;;'])


def _words_of(known: tuple[str, ...]) -> str:
    return f"default $({PROFILES})" if known == A_PROFILE else " ".join(known)


def _known() -> str:
    return " | ".join(f'"{" ".join(node.path)}"' for node in nodes() if node.path)


def _bash() -> str:
    """Bash makes words of the `=` and the value of `--profile=NAME`; the word behind -p is never a command."""
    return f"""# nedura completion for bash
_nedura() {{
    local current previous path words flags word next before
    current="${{COMP_WORDS[COMP_CWORD]}}"
    previous="${{COMP_WORDS[COMP_CWORD-1]}}"
    if [[ "$current" == "=" ]]; then
        current=""
    elif [[ "$previous" == "=" ]]; then
        previous="${{COMP_WORDS[COMP_CWORD-2]}}"
    fi
    path="" before=""
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        [[ "$word" == "=" ]] && continue
        case "$path $before" in
        {_taking()} | *" -p" | *" --profile")
            before=""
            continue ;;
        esac
        before="$word"
        next="${{path:+$path }}$word"
        case "$next" in
        {_known()}) path="$next" ;;
        esac
    done
    case "$path $previous" in
    *" -p" | *" --profile")
        COMPREPLY=($(compgen -W "default $({PROFILES})" -- "$current"))
        return ;;
    {_taking()})
        case "$path $previous" in
{_value_cases("        ")}
        esac
        COMPREPLY=($(compgen -W "$words" -- "$current"))
        return ;;
    esac
    case "$path" in
{_cases("    ")}
    esac
    case "$path" in
    {ON_PROFILES}) words="default $({PROFILES})" ;;
    esac
    case "$current" in
    -*) COMPREPLY=($(compgen -W "$flags" -- "$current")) ;;
    *) COMPREPLY=($(compgen -W "$words" -- "$current")) ;;
    esac
}}
complete -o default -F _nedura nedura"""


def _zsh() -> str:
    return f"""#compdef nedura
# nedura completion for zsh
_nedura() {{
    local current previous path_ words_ flags word next before names
    current="${{words[CURRENT]}}"
    previous="${{words[CURRENT-1]}}"
    path_="" before=""
    for word in "${{(@)words[2,CURRENT-1]}}"; do
        case "$path_ $before" in
        {_taking()} | *" -p" | *" --profile")
            before=""
            continue ;;
        esac
        before="$word"
        next="${{path_:+$path_ }}$word"
        case "$next" in
        {_known()}) path_="$next" ;;
        esac
    done
    if [[ "$previous" == "-p" || "$previous" == "--profile" ]]; then
        compadd -- default $({PROFILES})
        return
    fi
    if [[ "$current" == --profile=* ]]; then
        names=(default $({PROFILES}))
        compadd -- "${{names[@]/#/--profile=}}"
        return
    fi
    case "$path_ $previous" in
    {_taking()})
        case "$path_ $previous" in
{_value_cases("        ").replace("words=", "words_=")}
        esac
        if [[ -n "$words_" ]]; then
            compadd -- ${{=words_}}
        else
            _files
        fi
        return ;;
    esac
    case "$path_" in
{_cases("    ").replace("words=", "words_=")}
    esac
    case "$path_" in
    {ON_PROFILES}) words_="default $({PROFILES})" ;;
    esac
    if [[ "$current" == -* ]]; then
        compadd -- ${{=flags}}
    elif [[ -n "$words_" ]]; then
        compadd -- ${{=words_}}
    else
        _files
    fi
}}
if [[ "${{funcstack[1]}}" == "_nedura" ]]; then
    _nedura "$@"
else
    compdef _nedura nedura
fi"""


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _fish_words(known: tuple[str, ...]) -> str:
    return _quoted("(__nedura_profiles)" if known == A_PROFILE else " ".join(known))


def _fish() -> str:
    known = " ".join(_quoted(" ".join(node.path)) for node in nodes() if node.path)
    taking = " ".join(_quoted(f"{' '.join(node.path)} {flag}") for node in nodes() for flag, _ in node.values)
    lines = [
        "# nedura completion for fish",
        "function __nedura_path",
        f"    set -l known {known}",
        "    set -l path ''",
        "    set -l before ''",
        "    for word in (commandline -opc)[2..-1]",
        f'        if contains -- $before -p --profile; or contains -- "$path $before" {taking}',
        "            set before ''",
        "            continue",
        "        end",
        "        set before $word",
        '        set -l next (string trim -- "$path $word")',
        "        if contains -- $next $known",
        "            set path $next",
        "        end",
        "    end",
        '    test "$path" = "$argv"',
        "end",
        "function __nedura_profiles",
        "    set -l home $HOME/.nedura",
        "    set -q NEDURA_HOME; and set home (string replace -r '/profiles/[^/]*/?$' '' -- $NEDURA_HOME)",
        "    echo default",
        "    ls -1 $home/profiles 2>/dev/null",
        "end",
        "complete -c nedura -s p -l profile -x -a '(__nedura_profiles)' -d 'profile to use'",
    ]
    for node in nodes():
        where = _quoted(f"__nedura_path {' '.join(node.path)}".rstrip() if node.path else "__nedura_path ''")
        lines += [
            f"complete -c nedura -f -n {where} -a {_quoted(word)} -d {_quoted(about)}"
            for word, about in node.words
        ]
        for flag, about in node.flags:
            name = f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
            offered = dict(node.values).get(flag)
            value = "" if offered is None else " -r" if not offered else f" -x -a {_fish_words(offered)}"
            lines.append(f"complete -c nedura -n {where} {name}{value} -d {_quoted(about)}")
    return "\n".join(lines)
