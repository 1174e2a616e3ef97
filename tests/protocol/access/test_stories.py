"""Who may do what, told as stories: `testdata/<form>_<what>.txt`."""

import json
import tomllib
from pathlib import Path

import pytest

from pyledger.errors import ConfigError
from pyledger.protocol.access.accounts import AccountRules
from pyledger.protocol.access.model import AccessRules
from pyledger.protocol.access.needs import consuming, needs_of
from pyledger.protocol.access.policies import PolicyRules
from pyledger.wire.codes import RequestCode
from tests import datadriven

STORIES = sorted((Path(__file__).parent / "testdata").glob("*.txt"))
FORMS = {"accounts": AccountRules, "policies": PolicyRules}


class Narrator:
    def __init__(self, form: str) -> None:
        self.form = FORMS[form]
        self.rules: AccessRules | None = None

    def tell(self, step: datadriven.Step) -> str:
        said: str = getattr(self, step.command)(step)
        return said

    def rules_are(self, step: datadriven.Step) -> str:
        """The file: JSON, or TOML."""
        given = step.input
        try:
            self.rules = self.form.parse(json.loads(given) if given.startswith("{") else tomllib.loads(given))
        except ConfigError as problem:
            return str(problem)
        return "ok"

    def user(self, step: datadriven.Step) -> str:
        assert self.rules is not None
        found = self.rules.user(step.words[0])
        if found is None:
            return "unknown"
        return f"{found} {'super' if found.superuser else 'normal'}, {'on' if found.enabled else 'off'}"

    def trusts(self, step: datadriven.Step) -> str:
        assert self.rules is not None
        return str(self.rules.trusts(step.words[0], step.named.get("user")))

    def ask(self, step: datadriven.Step) -> str:
        """`ask USER CODE field=value … from=ADDRESS changes=yes`."""
        assert self.rules is not None
        named = dict(step.named)
        address, changes = named.pop("from", "10.0.0.1"), named.pop("changes", "no") == "yes"
        user = self.rules.user(step.words[0])
        assert user is not None
        needs = needs_of(RequestCode[step.words[1]], named, "Cluster", changes=changes)
        return self.rules.problem(user, needs, address) or "may"

    def consume(self, step: datadriven.Step) -> str:
        """`consume USER GROUP topics=(a,b)`."""
        assert self.rules is not None
        user = self.rules.user(step.words[0])
        assert user is not None
        return self.rules.problem(user, consuming(step.words[1], step.items("topics")), "10.0.0.1") or "may"


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_story(story: Path, rewrite: bool) -> None:
    narrator = Narrator(story.stem.partition("_")[0])
    datadriven.run(story, narrator.tell, rewrite=rewrite)


def test_every_form_has_a_story() -> None:
    assert {story.stem.partition("_")[0] for story in STORIES} == set(FORMS)
