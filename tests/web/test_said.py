"""What services say in English and consoles show: each sentence is in every other language, by its English words."""

import ast
import json
import re
from collections.abc import Iterator

import pytest
from pydantic.fields import FieldInfo

from crowdfl import errors
from crowdfl.schema import Expected, _marks, settable
from crowdfl.web.requester_console.form import SECTIONS
from tests.web.pages import WEB

SAID = {  # functions, classes or constants by module: consoles may show all that these say
    "crypto/paillier/budget.py": ("__post_init__", "explain"),
    "effects.py": ("_RULES", "_OF_TRAINING", "nothing_words", "profiles_of", "require_effect"),
    "protocols/paper/profile.py": ("explain",),
    "protocols/shares/profile.py": ("_counting", "_privacy", "_reference", "_PAY", "explain"),
    "protocols/shares/rule_widths.py": ("explain",),
    "protocols/shares/widths.py": ("explain", "_sketch_lines", "_remedy"),
    "roles/dealt.py": ("dealt_words",),
    "roles/defining.py": ("warnings", "recruiting_warnings", "invitation_warning", "_step_warnings"),
    "roles/guard.py": ("_set_back",),
    "roles/model_size.py": ("size_line", "require_size"),
    "roles/phones.py": ("phone_obstacle", "_untrainable"),
    "roles/restored.py": ("_RETURNED", "_MASKS_IN_DOUBT"),
    "roles/sp/operator.py": ("cancel", "retry_round", "_not_settled"),
    "roles/sp/rounds.py": ("_end_deserted", "_set_back_words"),
    "schema.py": ("expected", "_fault"),
    "services/http/problems.py": ("problem_for", "_invalid", "_NO_ROOM", "_BUSY", "_NO_STORE"),
    "settings.py": ("_AMOUNTS", "require_claim_window"),
    "web/requester_console/app.py": ("_FAULT",),
    "web/requester_console/form.py": ("_with_phones",),
}
RAISED = {  # of these, what they raise, and how they say how far they have come; an empty tuple: of the whole module
    "protocols/shares/profile.py": ("check",),
    "protocols/shares/shape.py": ("require_moving", "require_signal"),
    "protocols/shares/widths.py": ("_sketched", "_narrow_enough"),
    "roles/following.py": (),
    "roles/requester.py": (),
    "roles/sp/claims.py": ("resolve_dispute",),
    "roles/sp/deposits.py": (),
    "roles/sp/payees.py": (),
    "roles/sp/payments.py": (),
    "roles/sp/operator.py": ("require_reason",),
    "settings.py": (
        *("TaskSettings", "PlanSettings", "TrainingSettings", "ConsentSettings", "QuestionSettings", "TaskFile"),
        *("to_millionths",),
    ),
    "web/console_app.py": (),
    "web/requester_console/model_evaluation.py": (),
    "web/requester_console/requester_actions.py": (),
    "web/shell.py": (),
}
PUT_TOGETHER = {  # of pieces that stand alone in the code
    *(
        "at least {}",
        "above {}",
        "at most {}",
        "below {}",
        "true or false",
        "a string",
        "the form",
        "and",
        "or",
        "to",
        "{}, [{}]: {}",
    ),
    *("a number", "it took too long"),
    *("Not Found", "Method Not Allowed", "a `budget`"),
}
A_SETTING = re.compile(
    r"[a-z_]+ = [^ ]+(?: or [^ ]+)*(?: without `[a-z]+`)?"
)  # as a file has it, the same in every language
WORDS = re.compile(r"[a-z]{2,}.* .*[a-z]{2,}|[a-z]{2,} \{\}|\{\} [a-z]{2,}", re.DOTALL)


def templates(node: ast.AST) -> Iterator[str]:
    """Texts with {} for what is filled in; no docstrings."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        node = ast.Tuple([part.value for part in node.values if isinstance(part, ast.FormattedValue)])
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    documented = isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None
    for child in node.body[1:] if documented else ast.iter_child_nodes(node):  # type: ignore[attr-defined]
        yield from templates(child)


def named(path: str, names: tuple[str, ...]) -> Iterator[ast.AST]:
    tree = ast.parse((WEB.parent / path).read_text(encoding="utf-8"))
    if not names:
        yield tree
    for node in ast.walk(tree):
        own = [getattr(node, "name", None), *(getattr(one, "id", None) for one in getattr(node, "targets", ()))]
        if set(names) & set(own):
            yield node


def _is_told(node: ast.AST) -> bool:
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(node, ast.Raise) or (isinstance(called, ast.Name) and called.id == "progress")


def told() -> Iterator[ast.AST]:
    yield from (node for path, names in SAID.items() for node in named(path, names))
    places = (node for path, names in RAISED.items() for node in named(path, names))
    yield from (inner for node in places for inner in ast.walk(node) if _is_told(inner))


def sentences() -> set[str]:
    """All that consoles may show."""
    said = {one for node in told() for one in templates(node)}
    said |= {(vars(errors)[name].__doc__ or "").splitlines()[0] for name in errors.__all__}  # the title of each code
    marks = [mark for model in SECTIONS.values() for field in settable(model).values() for mark in _all_marks(field)]
    said = {one.strip() for one in said if WORDS.search(one) and not A_SETTING.fullmatch(one)}
    return said | {mark.text for mark in marks} | PUT_TOGETHER


def _all_marks(field: FieldInfo) -> list[Expected]:
    return [mark for mark in (*field.metadata, *_marks(field.annotation)) if isinstance(mark, Expected)]


def catalogue(code: str) -> dict[str, str]:
    text = (WEB / "common" / "said" / f"{code}.js").read_text(encoding="utf-8")
    return dict(json.loads(text.partition("export default ")[2].rstrip().removesuffix(";")))


@pytest.mark.parametrize("code", ["de", "zh"])
def test_every_sentence_of_a_service_is_translated_and_no_other(code):
    """A new error, rule or warning that consoles show needs a line in common/said."""
    found = catalogue(code)
    assert sorted(sentences() - set(found)) == []
    assert sorted(set(found) - sentences()) == []
    for english, words in found.items():
        places = {f"{{{number}}}" for number in range(1, english.count("{}") + 1)}
        assert set(re.findall(r"\{\d+\}", words)) == places, english
