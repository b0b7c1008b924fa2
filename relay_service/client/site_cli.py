"""The relay-site command: a site at the terminal."""

import asyncio
import contextlib
import json
import sys
from pathlib import Path
from typing import Any, Final

import click

from relay_service.client.cli_options import (
    OneLineErrors,
    connection_options,
    fail,
    load_keys,
    log_to_terminal,
    make_connection,
    make_keys,
    print_identity,
    quiet_grpc,
    run_to_end,
    show_identity,
)
from relay_service.client.keys import Keys
from relay_service.client.outcomes import ErrorOutcome
from relay_service.client.payloads import GeneratePayload, Payload
from relay_service.client.site import JobHandle, JobResult, Site
from relay_service.client.site_notices import OnOrphan
from relay_service.client.site_watch import Watch, result_fields
from relay_service.client.succession import sign_link

_DEFAULT_KEYS: Final = Path("~/.sealwork/site-keys.json")
_HINT_SECONDS: Final = 3.0
_NO_ANSWER: Final = 3

_HELP = """Ask for work on devices of people who consent to this site.

First steps, with a relay on this machine:

\b
  relay-site identity > site.json         (give it to whoever runs the relay)
  relay-site ask "Say hello." --owner alice

What is asked is sealed to the one device that takes it; the relay cannot read it. The site is named by
--site-id, as in the relay's projection.
"""
_STATUS = """\b
Exit status:
  0    done
  1    refused or failed; the reason is one line on standard error
  2    a wrong option
  3    the device reports an error or a cancel instead of an answer
  130  interrupted
"""
_HELP_NAMES: Final = {"help_option_names": ["-h", "--help"]}


def _keys_option(command: Any) -> Any:
    return click.option(
        "--keys",
        type=click.Path(dir_okay=False, path_type=Path),
        default=_DEFAULT_KEYS,
        show_default=True,
        metavar="FILE",
        help="The site's key file.",
    )(command)


def _earlier_keys_option(command: Any) -> Any:
    return click.option(
        "--earlier-keys",
        multiple=True,
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="A key file from before a rotation, for what is still sealed to it. May be repeated.",
    )(command)


def _site_options(command: Any) -> Any:
    command = click.option("-v", "--verbose", is_flag=True, help="Say what happens.")(command)
    command = _keys_option(_earlier_keys_option(connection_options(command)))
    return click.option(
        "--site-id", default="demo", show_default=True, metavar="ID", help="This site's id at the relay."
    )(command)


def _job_options(command: Any) -> Any:
    for option in (
        click.option("--owner", required=True, metavar="PERSON", help="The person whose work it is."),
        click.option("--system", metavar="TEXT", help="An instruction for the whole answer."),
        click.option("--private", is_flag=True, help="Only on the person's own devices."),
        click.option("--purpose", metavar="NAME", help="A need that the site has declared."),
        click.option("--job-id", metavar="ID", help="The job's id; a random one by default."),
        click.option(
            "--deadline",
            type=click.FloatRange(min=1, max=86_400),
            default=900,
            show_default=True,
            metavar="SECONDS",
            help="After this time the work is pointless.",
        ),
    ):
        command = option(command)
    return command


@click.group(cls=OneLineErrors, help=_HELP, epilog=_STATUS, context_settings=_HELP_NAMES)
def relay_site() -> None:
    pass


@relay_site.command(epilog=_STATUS)
@_keys_option
def keygen(keys: Path) -> None:
    """Make the site's keys, and print their public identity."""
    print_identity(make_keys(keys.expanduser()))


@relay_site.command(epilog=_STATUS, short_help="Print the site's public identity.")
@_keys_option
def identity(keys: Path) -> None:
    """Print the site's public identity, making keys first if there are none.

    Standard output is the JSON that "relay-service projection add-site" and "relay-daemon run --site-pin"
    take.
    """
    show_identity(keys.expanduser())


@relay_site.command(epilog=_STATUS, short_help="Make new keys, and vouch for them with the old ones.")
@_keys_option
@click.option(
    "--new-keys",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where the new keys are written.  [default: next-NAME beside the key file]",
)
def rotate(keys: Path, new_keys: Path | None) -> None:
    """Make the keys that this site moves to, and vouch for them with its present ones.

    Standard output is the old key's word for the new one, as JSON. Give it to whoever runs the relay, with
    what "relay-site identity --keys NEW" prints, for "relay-service sites rotate": once that is done, devices
    follow. Use the new file with --keys and the present one with --earlier-keys, from now on and until the
    old key has had its time. Run again, it prints the same.
    """
    old_file = keys.expanduser()
    new_file = (new_keys or keys.with_name(f"next-{keys.name}")).expanduser()
    old = load_keys(old_file, "relay-site keygen")
    new = Keys.load(new_file) if new_file.exists() else make_keys(new_file)
    if new.key_id == old.key_id:
        raise click.UsageError(f"--new-keys: {new_file} holds the present keys")
    click.echo(json.dumps(sign_link(old, new.key_id).to_json(), indent=2))
    click.echo(
        f"key id {old.key_id} is succeeded by {new.key_id}, once the relay's operator says so", err=True
    )


@relay_site.command(epilog=_STATUS)
@click.argument("prompt")
@_job_options
@click.option("--json", "as_json", is_flag=True, help="Print the whole outcome as JSON.")
@_site_options
def ask(prompt: str, as_json: bool, **options: Any) -> None:  # noqa: FBT001 - click calls it by name
    """Ask PROMPT, and print the answer. "-" reads the prompt from standard input."""
    site = _open_site(options)
    result = run_to_end(_ask(site, _payload(prompt, options), options))
    if as_json:
        click.echo(json.dumps(result_fields(result), ensure_ascii=False))
    elif result.disposition == "ok":
        click.echo(result.text)
    if result.disposition != "ok":
        if as_json:
            raise click.exceptions.Exit(_NO_ANSWER)
        fail(_no_answer(result), _NO_ANSWER)


@relay_site.command(epilog=_STATUS, short_help="Publish PROMPT, and leave once a device has it.")
@click.argument("prompt")
@_job_options
@_site_options
def enqueue(prompt: str, **options: Any) -> None:
    """Publish PROMPT as a job, seal it to the device that takes it, and print the job's id.

    The answer is left at the relay, for a day at most: "relay-site watch" reads it. When the device gives the
    job back after this command has ended, nobody can seal it again, and it ends without an answer.
    """
    click.echo(run_to_end(_enqueue(_open_site(options), _payload(prompt, options), options)))


@relay_site.command(epilog=_STATUS)
@click.argument("job_id")
@_site_options
def cancel(job_id: str, **options: Any) -> None:
    """Withdraw a job."""
    if not run_to_end(_cancel(_open_site(options, streams=False), job_id)):
        fail(f"the relay knows no job {job_id} of this site")
    click.echo(f"{job_id} is withdrawn")


@relay_site.command(epilog=_STATUS, short_help="Print notices and answers, a JSON object a line.")
@click.option("--settle", is_flag=True, help="Let the relay forget each answer once it is printed.")
@click.option("--once", is_flag=True, help="End when the inbox has been read.")
@_site_options
def watch(settle: bool, once: bool, **options: Any) -> None:  # noqa: FBT001 - click calls it by name
    """Print what the relay has to say to this site, a JSON object a line, with the answers opened.

    Claims are printed and left alone: whoever has the prompt has to seal it.
    """
    watching = Watch(settle=settle, echo=lambda line: click.echo(json.dumps(line, ensure_ascii=False)))
    site = _open_site(options, streams=not once, on_orphan=watching.notice)
    run_to_end(watching.run(site, once=once))


def _open_site(options: dict[str, Any], *, streams: bool = True, on_orphan: OnOrphan | None = None) -> Site:
    log_to_terminal(verbose=options["verbose"])
    connection = make_connection(
        options["relay"],
        tls=options["tls"],
        tls_ca=options["tls_ca"],
        plaintext=options["plaintext"],
    )
    keys = load_keys(options["keys"].expanduser(), "relay-site keygen")
    earlier = [Keys.load(path.expanduser()) for path in options["earlier_keys"]]
    try:
        return Site(
            connection,
            site_id=options["site_id"],
            keys=keys,
            earlier_keys=earlier,
            streams=streams,
            on_orphan=on_orphan,
        )
    except ValueError as error:
        raise click.UsageError(f"--site-id: {error}") from None


def _payload(prompt: str, options: dict[str, Any]) -> Payload:
    text = sys.stdin.read() if prompt == "-" else prompt
    return GeneratePayload(text, options["system"])


async def _ask(site: Site, payload: Payload, options: dict[str, Any]) -> JobResult:
    async with site:
        job = await _publish(site, payload, options)
        hint = asyncio.get_running_loop().call_later(_HINT_SECONDS, _hint, job, options["owner"])
        try:
            return await job.result()
        except asyncio.CancelledError:
            # Interrupted: nobody waits for the answer any more.
            with contextlib.suppress(Exception):
                await job.cancel()
            raise
        finally:
            hint.cancel()


async def _enqueue(site: Site, payload: Payload, options: dict[str, Any]) -> str:
    async with site:
        job = await _publish(site, payload, options)
        hint = asyncio.get_running_loop().call_later(_HINT_SECONDS, _hint, job, options["owner"])
        await job.sealed()
        hint.cancel()
        if job.done:
            await job.result()
        return job.id


async def _cancel(site: Site, job_id: str) -> bool:
    async with site:
        return await site.cancel(job_id)


async def _publish(site: Site, payload: Payload, options: dict[str, Any]) -> JobHandle:
    return await site.enqueue(
        payload,
        owner=options["owner"],
        audience="private" if options["private"] else "team",
        purpose=options["purpose"],
        job_id=options["job_id"],
        deadline_ms=round(options["deadline"] * 1000),
    )


def _hint(job: JobHandle, owner: str) -> None:
    if not job.is_sealed:
        click.echo(
            f"No device has taken the job yet. Is a relay-daemon of {owner} running, and does {owner} consent"
            " to this site? Waiting; Ctrl-C withdraws the job.",
            err=True,
        )


def _no_answer(result: JobResult) -> str:
    if not isinstance(result.outcome, ErrorOutcome):
        return "the job was canceled"
    again = "; it may work when asked again" if result.outcome.retryable else ""
    return f"the device reports {result.outcome.code}: {result.outcome.message}{again}"


def main() -> None:
    """Run the command with the arguments of this process, and end it."""
    quiet_grpc()
    relay_site(prog_name="relay-site")
