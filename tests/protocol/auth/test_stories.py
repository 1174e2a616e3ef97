"""Authorization as text stories: `testdata/<form>_<what>.txt`."""

import json
import tomllib
from pathlib import Path

import pytest

from pyledger.errors import ConfigError
from pyledger.model.remoting_codes import RequestCode
from pyledger.protocol.auth.admin_changes import (
    acl_documents,
    create_user,
    delete_acl,
    delete_user,
    find_acl,
    put_acl,
    update_user,
    user_documents,
)
from pyledger.protocol.auth.model import AuthRules, Objection, User
from pyledger.protocol.auth.plain_acl import AccountRules
from pyledger.protocol.auth.policies import PolicyRules
from pyledger.protocol.auth.required_permissions import consuming, needs_of
from tests.support import datadriven

STORIES = sorted((Path(__file__).parent / "testdata").glob("*.txt"))
FORMS = {"accounts": AccountRules, "policies": PolicyRules}


class Narrator:
    def __init__(self, form: str) -> None:
        self.form = FORMS[form]
        self.rules: AuthRules | None = None

    def run_step(self, step: datadriven.Step) -> str:
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


class Operator(Narrator):
    """Users and policies that are changed."""

    def __init__(self, form: str) -> None:
        super().__init__("policies")
        assert form == "changes"

    def requester(self, step: datadriven.Step) -> User:
        return self.policies.users[step.words[0]]

    @property
    def policies(self) -> PolicyRules:
        assert isinstance(self.rules, PolicyRules)
        return self.rules

    def became(self, found: PolicyRules | Objection) -> str:
        if isinstance(found, Objection):
            return f"{found.code.name}: {found.remark}"
        # What is written is read again as it was.
        self.rules = PolicyRules.parse(json.loads(json.dumps(found.document())))
        assert self.rules.document() == found.document()
        return "ok"

    def create(self, step: datadriven.Step) -> str:
        name = " ".join(step.words[1:]).strip('"')
        return self.became(create_user(self.policies, self.requester(step), name, json.loads(step.input)))

    def update(self, step: datadriven.Step) -> str:
        return self.became(
            update_user(self.policies, self.requester(step), step.words[1], json.loads(step.input))
        )

    def delete(self, step: datadriven.Step) -> str:
        return self.became(delete_user(self.policies, self.requester(step), step.words[1]))

    def grant(self, step: datadriven.Step) -> str:
        said = self.became(put_acl(self.policies, step.words[0], json.loads(step.input)))
        found = find_acl(self.policies, step.words[0])
        return said if said != "ok" else f"ok\n{json.dumps(found)}"

    def revoke(self, step: datadriven.Step) -> str:
        named = step.named
        return self.became(delete_acl(self.policies, step.words[0], named.get("type"), named.get("resource")))

    def acls(self, step: datadriven.Step) -> str:
        found = acl_documents(self.policies, step.named.get("subject", ""), step.named.get("resource", ""))
        return "\n".join(map(json.dumps, found)) or "none"

    def users(self, step: datadriven.Step) -> str:
        found = user_documents(self.policies, self.requester(step), step.named.get("part", ""))
        return "\n".join(map(json.dumps, found))


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_story(story: Path, rewrite: bool) -> None:
    form = story.stem.partition("_")[0]
    narrator = Operator(form) if form == "changes" else Narrator(form)
    datadriven.run(story, narrator.run_step, rewrite=rewrite)


def test_every_form_has_a_story() -> None:
    assert {story.stem.partition("_")[0] for story in STORIES} == {*FORMS, "changes"}
