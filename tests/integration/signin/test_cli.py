"""`nedura auth ...` and `nedura model` as real processes."""

from __future__ import annotations

import base64
import json
import shlex
import signal
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest
import trustme

from nedura.locks import FileLock
from nedura.signin import AccountStore
from nedura.signin.handoff_record import note_replacement
from nedura.testing.portal import PortalControl, portal_process
from tests.integration.signin.cli import Machine, Ran


@pytest.fixture(scope="module")
def shared_portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PortalControl]:
    with portal_process(tmp_path_factory.mktemp("portal"), "--interval", "1") as control:
        yield control


@pytest.fixture
def machine(
    tmp_path: Path,
    shared_portal: PortalControl,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Machine]:
    shared_portal.clear_faults()
    shared_portal.knobs(granted_scope="", inference="official", auto_approve="", interval=1)
    yield Machine(tmp_path, shared_portal, monkeypatch, capsys)
    shared_portal.clear_faults()


def said(ran: Ran) -> str:
    return ran.out + ran.err


def test_upgrade_status_list_logout(machine: Machine) -> None:
    ran = machine.sign_in()
    assert (ran.code, ran.kinds) == (0, ["code", "waiting", "completed"])
    assert ran.err == ""
    again = machine.run("auth", "upgrade", "--json")
    assert (again.code, again.kinds) == (0, ["already_signed_in"])
    status = machine.run("auth", "status", "nous", "--json").events[0]
    assert (status["kind"], status["state"], status["email"], status["checked"]) == (
        "auth_status", "signed_in", "alice@example.test", True,
    )  # fmt: skip
    listed = machine.run("auth", "list", "--json").events
    assert [(row["provider"], row["email"], row["active"]) for row in listed] == [
        ("nous", "alice@example.test", True)
    ]
    out = machine.run("auth", "logout", "nous", "--revoke", "--json").events[0]
    assert (out["kind"], out["changed"], out["revoked"]) == ("signed_out", True, True)
    assert machine.run("auth", "status", "--json").events[0]["state"] == "signed_out"
    assert machine.run("auth", "logout").out == "Nobody was signed in.\n"
    assert machine.auth()["providers"] == {}


def test_the_plain_words_of_a_sign_in(machine: Machine) -> None:
    ran = machine.sign_in("auth", "upgrade", "--no-browser")
    lines = ran.out.splitlines()
    code = next(line for line in lines if "this code:" in line).split()[-1]
    assert f"  {machine.portal.url}/device?user_code={code}" in lines
    assert f"On another device: open {machine.portal.url}/device and type the code." in lines
    assert lines[-1] == "Signed in as alice@example.test."
    assert "up to 10 minutes" in ran.out


def test_declining_is_exit_1_with_its_own_words(machine: Machine) -> None:
    ran = machine.sign_in("auth", "upgrade", "--no-browser", action="decline")
    assert ran.code == 1
    assert "declined in the browser" in ran.out


@pytest.mark.parametrize("words", [("auth", "upgrade"), ("model",)])
def test_ctrl_c_is_130_with_a_line_and_nothing_saved(machine: Machine, words: tuple[str, ...]) -> None:
    ran = machine.interrupt(*words, "--no-browser")
    assert ran.code == 130
    assert ran.out.splitlines()[-1] == "The sign-in was cancelled. Nothing was saved."
    assert "Traceback" not in said(ran)
    assert not (machine.home / "auth.json").exists()


def test_ctrl_c_under_json_ends_with_the_cancelled_event(machine: Machine) -> None:
    ran = machine.interrupt("auth", "upgrade", "--json")
    assert (ran.code, ran.kinds) == (130, ["code", "waiting", "cancelled"])


def test_a_portal_that_is_not_there(machine: Machine) -> None:
    machine.extra = {"NEDURA_PORTAL_BASE_URL": "http://127.0.0.1:9"}
    ran = machine.run("auth", "upgrade", "--json")
    assert (ran.code, ran.kinds) == (1, ["failed"])
    assert ran.events[0]["reason"] == "anon_unreachable"
    assert ran.events[0]["retryable"] is True


def test_add_with_every_flag(machine: Machine) -> None:
    machine.extra = {"NEDURA_PORTAL_BASE_URL": "http://127.0.0.1:9"}  # the flag wins
    ran = machine.sign_in(
        "auth", "add", "nous", "--portal-url", machine.portal.url, "--client-id", "my-client", "--scope",
        "inference:invoke extra", "--label", "work", "--priority", "3", "--timeout", "5", "--no-browser", "--json",
        "--inference-url", "https://inference-api.nousresearch.com/v1",
    )  # fmt: skip
    assert ran.code == 0, said(ran)
    entry = machine.auth()["providers"]["nous"]
    assert (entry["client_id"], entry["label"], entry["portal_base_url"]) == (
        "my-client",
        "work",
        machine.portal.url,
    )
    assert entry["scope"] == "inference:invoke extra"
    row = machine.auth()["credential_pool"]["nous"][0]
    assert (row["label"], row["priority"]) == ("work", 3)


def test_add_signs_in_over_an_account(machine: Machine) -> None:
    machine.sign_in()
    ran = machine.sign_in("auth", "add", "nous", "--no-browser", "--json", account="bob@example.test")
    assert ran.code == 0
    assert ran.events[-1]["email"] == "bob@example.test"


def test_wrong_use_is_exit_2_in_one_line(machine: Machine) -> None:
    for words in (
        ("auth", "add"), ("auth", "add", "other"), ("auth", "upgrade", "--timeout", "0"), ("auth", "nope"),
        ("auth", "add", "nous", "--insecure", "--ca-bundle", "x"),
    ):  # fmt: skip
        ran = machine.run(*words)
        assert ran.code == 2, words
        assert len(ran.err.strip().splitlines()) == 1
    gone = machine.run("auth", "add", "nous", "--ca-bundle", "/gone.pem", "--json")
    assert gone.code == 1
    assert "/gone.pem" in gone.events[-1]["copy_terminal"]


def test_insecure_is_remembered_and_shown(machine: Machine) -> None:
    ran = machine.sign_in("auth", "add", "nous", "--insecure", "--no-browser", "--json")
    assert ran.code == 0
    assert "NOT checked" in ran.err
    assert machine.auth()["providers"]["nous"]["tls"] == {"insecure": True, "ca_bundle": None}
    assert "NOT checked" in machine.run("auth", "status").out


def test_another_profiles_account_is_taken_over_when_asked(machine: Machine) -> None:
    (machine.home / "profiles" / "coder").mkdir(parents=True, mode=0o700)
    machine.sign_in("-p", "coder", "auth", "upgrade", "--json")
    ran = machine.run("auth", "add", "nous", "--yes", "--json")
    assert (ran.code, ran.kinds) == (0, ["completed"])
    assert ran.events[0]["email"] == "alice@example.test"
    other = json.loads((machine.home / "profiles" / "coder" / "auth.json").read_text())
    assert machine.auth()["providers"]["nous"]["access_token"] != other["providers"]["nous"]["access_token"]
    assert machine.run("-p", "coder", "auth", "status", "--json").events[0]["checked"] is True


def test_an_import_that_fails_goes_on_with_a_sign_in(machine: Machine) -> None:
    (machine.home / "profiles" / "coder").mkdir(parents=True, mode=0o700)
    machine.sign_in("-p", "coder", "auth", "upgrade", "--json", account="bob@example.test")
    machine.portal.revoke_families("bob@example.test")
    ran = machine.sign_in("auth", "add", "nous", "--yes", "--no-browser", "--json")
    assert ran.code == 0, said(ran)
    assert "A new sign-in is started" in ran.err
    assert ran.kinds == ["code", "waiting", "completed"]


def test_step_up_is_true_only_when_granted(machine: Machine) -> None:
    assert machine.run("auth", "step-up", "--json").code == 2
    machine.sign_in()
    ran = machine.sign_in("auth", "step-up", "--scope", "billing:manage", "--no-browser", "--json")
    assert (ran.code, ran.events[-1]) == (0, {"kind": "step_up", "scope": "billing:manage", "granted": True})
    assert machine.auth()["providers"]["nous"]["scope"] == "inference:invoke billing:manage"
    assert machine.run("auth", "step-up", "--json").code == 0


def test_step_up_that_the_server_downscopes_is_exit_1(machine: Machine) -> None:
    machine.sign_in()
    machine.portal.knobs(granted_scope="inference:invoke")
    ran = machine.sign_in("auth", "step-up", "--no-browser")
    assert ran.code == 1
    assert "did not grant billing:manage" in ran.out


def test_step_up_as_somebody_else_changes_nothing(machine: Machine) -> None:
    machine.sign_in()
    before = machine.auth()
    ran = machine.sign_in("auth", "step-up", "--no-browser", account="bob@example.test")
    assert ran.code == 1
    assert "Another account" in ran.out
    assert machine.auth() == before


def test_login_for_tools(machine: Machine) -> None:
    ran = machine.sign_in("auth", "add", "nous", "--for", "tools", "--no-browser", "--json")
    assert ran.code == 0
    assert machine.auth()["providers"]["nous"]["scope"] == "inference:invoke tool:invoke"
    machine.portal.knobs(granted_scope="inference:invoke")
    ran = machine.sign_in("auth", "add", "nous", "--for", "tools", "--no-browser")
    assert ran.code == 1
    assert "no right to use tools" in ran.err


def test_from_the_free_tier_to_an_account_with_its_apps(machine: Machine) -> None:
    off = machine.run("auth", "free-tier", "--json")
    assert (off.code, off.events[0]["ready"]) == (1, False)
    machine.extra = {"NEDURA_GUEST_ONBOARDING": "1"}
    ran = machine.run("auth", "free-tier", "--json")
    assert (ran.code, ran.events[0]["ready"], ran.events[0]["account"]) == (0, True, False)
    assert machine.run("auth", "status", "--json").events[0]["state"] == "free_tier"
    done = machine.sign_in().events[-1]
    assert done["handoff_status"]["state"] == "claimed"
    assert machine.run("auth", "status", "--json").events[0]["handoff_status"]["state"] == "claimed"
    for path in (machine.home / "auth.json", machine.home / "shared" / "nous_auth.json"):
        assert "anon_token" not in path.read_text()


def test_model_is_picked_at_the_terminal(machine: Machine) -> None:
    machine.extra = {"NOUS_INFERENCE_BASE_URL": f"{machine.portal.url}/v1"}
    machine.sign_in()
    child = pexpect.spawn(
        sys.executable,
        ["-m", "nedura_cli", "model"],
        env={**machine.environ, "TERM": "xterm"},
        encoding="utf-8",
        timeout=20,
    )
    child.expect("Choose 1-")
    child.sendline("2")
    child.expect("The default model is now ([^\r\n]+)\\.")
    picked = child.match.group(1)
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    config = (machine.home / "config.yaml").read_text()
    assert picked in config
    assert "provider: nous" in config


def test_model_without_a_person_lists_and_keeps(machine: Machine) -> None:
    machine.extra = {"NOUS_INFERENCE_BASE_URL": f"{machine.portal.url}/v1"}
    ran = machine.sign_in("model", "--no-browser", "--json")
    assert ran.code == 0, said(ran)
    assert ran.kinds == ["code", "waiting", "completed", "models"]
    assert ran.events[-1]["recommended"] in ran.events[-1]["models"]
    named = machine.run("model", "some/model", "--json")
    assert named.events[-1] == {"kind": "model", "default": "some/model", "changed": True}
    assert machine.run("auth", "status", "--json").events[0]["model"] == "some/model"
    assert machine.run("model", "not a model").code == 2


def test_a_picker_that_fails_keeps_the_sign_in_and_the_provider_in_use(machine: Machine) -> None:
    machine.extra = {"NOUS_INFERENCE_BASE_URL": f"{machine.portal.url}/v1"}
    machine.home.mkdir(mode=0o700)
    (machine.home / "auth.json").write_text(
        '{"version": 1, "active_provider": "other", "providers": {"other": {"k": 1}}}'
    )
    (machine.home / "auth.json").chmod(0o600)
    machine.portal.plant(route="models", status=500, times=-1)
    ran = machine.sign_in("model", "--no-browser")
    assert ran.code == 1
    assert "The sign-in is kept" in ran.err
    assert machine.auth()["active_provider"] == "other"
    assert machine.auth()["providers"]["nous"]["refresh_token"]


def test_status_answers_at_once_while_a_sign_in_waits(machine: Machine) -> None:
    process = machine.begin("auth", "upgrade", "--json")
    with AccountStore(machine.home, environ=machine.environ, lock_timeout=0.2).transaction():
        pass  # no lock is held while somebody is at the page
    start = time.monotonic()
    assert machine.run("auth", "status", "--json").events[0]["state"] == "signed_out"
    assert time.monotonic() - start < 5
    process.terminate()
    process.communicate()


def test_two_processes_sign_in_at_once_in_one_home(machine: Machine) -> None:
    before = machine.pending()
    processes = [machine.begin("auth", "upgrade", "--json") for _ in range(2)]
    for code, email in zip(
        sorted(machine.pending() - before), ("alice@example.test", "bob@example.test"), strict=True
    ):
        machine.portal.decide(code, account=email)
    ends = []
    for process in processes:
        out, err = process.communicate(timeout=45)
        assert (process.returncode, err) == (0, "")
        ends.append(json.loads(out.splitlines()[-1]))
    assert sorted(end["kind"] for end in ends) == ["already_signed_in", "completed"]
    assert len({end["email"] for end in ends}) == 1  # the later one names the account that came first
    entry = machine.auth()["providers"]["nous"]
    shared = json.loads((machine.home / "shared" / "nous_auth.json").read_text())
    assert entry["refresh_token"] == shared["refresh_token"]
    assert machine.run("auth", "status", "--json").events[0]["checked"] is True


def test_hostile_text_of_the_portal_reaches_no_terminal(machine: Machine) -> None:
    evil = "\x1b]8;;http://evil\x07\x1b[31mX\u202e"
    machine.portal.plant(route="device_code", status=400, error=evil, text=evil)
    ran = machine.run("auth", "upgrade")
    assert ran.code == 1
    assert "\x1b" not in said(ran)
    assert "\u202e" not in said(ran)
    machine.portal.knobs(verification_uri="https://x/\x1b]8;;http://evil\x07")
    try:
        ran = machine.run("auth", "upgrade")
    finally:
        machine.portal.knobs(verification_uri="")
    assert ran.code == 1
    assert "\x1b" not in said(ran)
    assert "evil" not in said(ran)


def _forms(secret: str) -> list[bytes]:
    raw = secret.encode()
    return [raw, base64.b64encode(raw), urllib.parse.quote(secret, safe="").encode()]


def test_no_token_that_the_portal_ever_issued_is_in_any_output_or_log(machine: Machine) -> None:
    """The needle test over the sign-in flows, failures included: only the stores hold tokens."""
    machine.extra = {"NOUS_INFERENCE_BASE_URL": f"{machine.portal.url}/v1"}
    ran: list[Ran] = [
        machine.sign_in("--debug", "auth", "upgrade"),
        machine.run("-v", "auth", "status", "--json"),
        machine.run("auth", "list", "--json"),
        machine.run("--debug", "model", "--json"),
        machine.sign_in("auth", "add", "nous", "--no-browser", action="decline"),
    ]
    machine.portal.plant(route="token.device", status=400, error="odd", text="echo")
    ran.append(machine.sign_in("auth", "add", "nous", "--no-browser", "--json"))
    machine.portal.revoke_families("alice@example.test")
    machine.portal.plant(route="account", status=401, times=-1)
    ran += [machine.run("auth", "status"), machine.run("model"), machine.run("auth", "logout", "--revoke")]
    issued = machine.portal.issued()
    assert len(issued) >= 4
    outputs = b"".join((r.out + r.err).encode() for r in ran)
    stores = {"auth.json", "nous_auth.json"}
    files = [p for p in machine.folder.rglob("*") if p.is_file() and p.name not in stores]
    for secret in issued:
        for form in _forms(secret):
            assert form not in outputs
            for path in files:
                assert form not in path.read_bytes(), path


def test_no_token_is_in_the_arguments_or_environment_of_a_child(machine: Machine) -> None:
    process = machine.begin("auth", "upgrade", "--json")
    base = Path(f"/proc/{process.pid}")
    seen = (base / "cmdline").read_bytes() + (base / "environ").read_bytes()
    process.terminate()
    process.communicate()
    assert not any(secret.encode() in seen for secret in machine.portal.issued())


def test_a_damaged_store_can_be_signed_out_of(machine: Machine) -> None:
    machine.home.mkdir(mode=0o700)
    (machine.home / "auth.json").write_bytes(b'{"providers": {"nous": {"acc')
    assert machine.run("auth", "status", "--json").events[0]["state"] == "damaged"
    ran = machine.run("auth", "logout", "--json")
    assert (ran.code, ran.events[0]["set_aside"]) == (0, "auth.json.corrupt")
    assert machine.run("auth", "status", "--json").events[0]["state"] == "signed_out"


def _with_another_provider(machine: Machine) -> None:
    machine.extra = {"NOUS_INFERENCE_BASE_URL": f"{machine.portal.url}/v1"}
    machine.home.mkdir(mode=0o700)
    store = machine.home / "auth.json"
    store.write_text('{"version": 1, "active_provider": "other", "providers": {"other": {"k": 1}}}')
    store.chmod(0o600)


def test_a_bad_model_id_keeps_the_provider_in_use(machine: Machine) -> None:
    _with_another_provider(machine)
    assert machine.sign_in("model", "not a model", "--no-browser").code == 2
    assert machine.auth()["active_provider"] == "other"
    assert machine.auth()["providers"]["nous"]["refresh_token"]


@pytest.mark.parametrize("answer", ["\x03", "\u00b2\n"], ids=["ctrl-c", "superscript two"])
def test_the_picker_left_without_a_choice_keeps_the_provider_in_use(machine: Machine, answer: str) -> None:
    _with_another_provider(machine)
    machine.sign_in("model", "--no-browser")
    assert machine.auth()["active_provider"] == "other"
    child = pexpect.spawn(
        sys.executable,
        ["-m", "nedura_cli", "model"],
        env={**machine.environ, "TERM": "xterm"},
        encoding="utf-8",
        timeout=20,
    )
    child.expect("Choose 1-")
    child.send(answer)
    child.expect(pexpect.EOF)
    said = child.before or ""
    child.close()
    assert child.exitstatus != 0
    assert "Traceback" not in said
    assert machine.auth()["active_provider"] == "other"


def test_a_scope_of_nothing_is_refused(machine: Machine) -> None:
    machine.sign_in()
    assert machine.run("auth", "step-up", "--scope", "").code == 2


def test_a_certificate_file_that_is_not_there_is_said_on_stderr(machine: Machine) -> None:
    machine.extra = {"SSL_CERT_FILE": "/nonexistent/ca.pem"}
    assert "SSL_CERT_FILE is not there" in machine.sign_in("auth", "upgrade", "--no-browser").err


def test_a_step_up_says_that_the_remembered_certificate_file_is_gone(
    machine: Machine, tmp_path: Path
) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_text(trustme.CA().cert_pem.bytes().decode())
    machine.sign_in("auth", "add", "nous", "--no-browser", "--ca-bundle", str(bundle))
    bundle.unlink()
    ran = machine.sign_in("auth", "step-up", "--no-browser")
    assert "The saved certificate file is not there" in ran.err


def test_ctrl_c_ends_a_sign_out_that_waits_for_a_lock(machine: Machine) -> None:
    machine.sign_in()
    before = (machine.home / "auth.json").read_bytes()
    lock = FileLock(machine.home / "auth.lock")
    assert lock.try_acquire()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "nedura_cli", "auth", "logout"], env=machine.environ, cwd="/",
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        time.sleep(1.0)
        process.send_signal(signal.SIGINT)
        start = time.monotonic()
        out, err = process.communicate(timeout=30)
        assert time.monotonic() - start < 2
    finally:
        lock.release()
    assert (process.returncode, out, err) == (130, "", "\nnedura: interrupted.\n")
    assert (machine.home / "auth.json").read_bytes() == before


def test_an_upgrade_whose_answer_nobody_can_read_signs_in_and_says_so(machine: Machine) -> None:
    machine.portal.knobs(auto_approve="alice@example.test")
    command = f"exec {shlex.quote(sys.executable)} -m nedura_cli auth upgrade --json > /dev/full"
    ran = subprocess.run(
        ["/bin/sh", "-c", command], env=machine.environ, cwd="/", capture_output=True, text=True,
        stdin=subprocess.DEVNULL, timeout=60, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (
        1, "nedura: the output could not be written: No space left on device.\n",
    )  # fmt: skip
    assert machine.run("auth", "status", "--json").events[0]["state"] == "signed_in"


def test_an_upgrade_of_an_account_moves_what_is_due_and_says_it(machine: Machine) -> None:
    machine.sign_in()
    old = {
        "auth_method": "anonymous",
        "anon_token": "anon_" + "z" * 24,
        "portal_base_url": machine.portal.url,
    }
    note_replacement(machine.home, old=old, new=machine.auth()["providers"]["nous"], now=time.time() - 60)
    assert "earlier session" in machine.run("auth", "upgrade").out
