"""Options that both command lines share: option, variable, file."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from changelog_state.cli.options import KAFKA_VARIABLE, Common, with_common_options
from changelog_state.errors import ConfigurationError


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    for partition in ("0", "1", "2", "10", "notes"):
        (tmp_path / "state" / "stores" / "shop" / "totals" / partition).mkdir(parents=True)
    return tmp_path / "state"


def test_option_before_variable_before_file(tmp_path: Path) -> None:
    seen: list[Common] = []

    @with_common_options
    def command(common: Common, own: int = 1) -> None:
        assert own == 2
        seen.append(common)

    app = typer.Typer()
    app.command()(command)
    file = tmp_path / "store.toml"
    file.write_text('application = "from-file"\nstore = "from-file"\nstate_dir = "/from/file"\n')
    environment = {"CHANGELOG_STATE_STORE": "from-variable", "CHANGELOG_STATE_PARTITIONS": "0-3"}
    words = ["--own", "2", "--config", str(file), "--state-dir", "/from/option"]
    result = CliRunner().invoke(app, words, env=environment)
    assert result.exit_code == 0, result.output
    [common] = seen
    assert common.partitions == "0-3"
    target = common.local_target()
    assert (target.application, target.store) == ("from-file", "from-variable")
    assert target.state_dir == Path("/from/option")


def test_local_partitions_are_those_in_the_directory(state_dir: Path) -> None:
    given = {"application": "shop", "store": "totals", "state_dir": state_dir}
    assert Common(**given).local_target().partitions == [0, 1, 2, 10]  # type: ignore[arg-type]
    assert Common(**given, partitions="1-5,10").local_target().partitions == [1, 2, 10]  # type: ignore[arg-type]
    assert Common(application="shop", store="other", state_dir=state_dir).local_target().partitions == []


def test_what_is_missing_is_named() -> None:
    with pytest.raises(ConfigurationError, match="--store, CHANGELOG_STATE_STORE, or --config FILE"):
        Common(application="shop").local_target()
    with pytest.raises(ConfigurationError, match="--bootstrap-servers"):
        Common(application="shop", store="totals").target()


def test_a_file_with_a_setting_that_does_not_exist(tmp_path: Path) -> None:
    file = tmp_path / "store.toml"
    file.write_text('application = "shop"\nstor = "totals"\n')
    with pytest.raises(ConfigurationError, match="has stor, which is no setting; known are .*bootstrap_servers"):
        Common(config=file).local_target()
    file.write_text("application = ")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        Common(config=file).local_target()


def test_names_are_no_paths(state_dir: Path) -> None:
    """Commands that delete directories are given these."""
    for name in ("..", "../../etc", ""):
        with pytest.raises(ConfigurationError, match="not usable"):
            Common(application=name, store="totals", state_dir=state_dir).local_target()


def test_client_settings_from_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file says it better; what it does not say comes from the variable."""
    file = tmp_path / "store.toml"
    file.write_text('application = "shop"\nbootstrap_servers = "b:1"\n[kafka]\n"client.rack" = "from-file"\n')
    monkeypatch.setenv(KAFKA_VARIABLE, '{"client.rack": "from-variable", "sasl.password": "s3cret"}')
    cluster = Common(config=file).cluster()
    assert cluster.kafka == {"client.rack": "from-file", "sasl.password": "s3cret"}
    assert cluster.agents_topic == "shop-agents"
    given = Common(application="shop", bootstrap_servers="b:1").cluster()
    assert given.kafka == {"client.rack": "from-variable", "sasl.password": "s3cret"}
    for broken in ('{"sasl.password": "s3cret"', '["s3cret"]'):
        monkeypatch.setenv(KAFKA_VARIABLE, broken)
        with pytest.raises(ConfigurationError, match=f"{KAFKA_VARIABLE} is not a JSON object") as raised:
            Common(application="shop", bootstrap_servers="b:1").cluster()
        assert "s3cret" not in str(raised.value)
        assert raised.value.__cause__ is None
