"""`${...}` in configurations: what can be read, as which type, and what is refused."""

import math
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import ClassVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from yukta_rx.config.settings import Settings
from yukta_rx.errors import BadInputError
from yukta_rx.model.message import Message
from yukta_rx.security.variables import Scope, compile_number, compile_template, has_expression

pytestmark = pytest.mark.feature("SEC-02")

PAYLOAD = {
    "name": "Ada",
    "secs": 5,
    "text": "7",
    "share": 0.5,
    "ok": True,
    "nothing": None,
    "tags": ["a", "b"],
    "order": {"items": [{"sku": "x"}, {"sku": "y"}]},
    "first name": "Ada Byron",
    "3": "three",
}
HEADERS = {"trace": "t-1", "failure.attempts": 3, "nested": {"deep": 1}}


def resolve(value, payload=PAYLOAD, headers=HEADERS, **scope):
    return compile_template(value).resolve(Scope(Message.of(payload, headers), **scope))


def refusal(value, payload=PAYLOAD, **scope):
    with pytest.raises(BadInputError) as refused:
        resolve(value, payload, **scope)
    return refused.value


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("${payload.name}", "Ada"),
        ("${payload.secs}", "5"),
        ("${payload.secs:text}", "5"),
        ("${payload.secs:int}", 5),
        ("${payload.text:int}", 7),
        ("${payload.share:number}", 0.5),
        ("${payload.text:number}", 7),
        ("${payload.ok}", "true"),
        ("${payload.ok:bool}", True),
        ("${payload.nothing}", "null"),
        ("${payload.nothing:json}", None),
        ("${payload.tags}", '["a","b"]'),
        ("${payload.tags:json}", ["a", "b"]),
        ("${payload.tags.1}", "b"),
        ("${payload.order.items.0.sku}", "x"),
        ("${payload.first name}", "Ada Byron"),
        ("${payload.3}", "three"),
        ("${ payload.name }", "Ada"),
        ("${metadata.trace}", "t-1"),
        ("${headers.trace}", "t-1"),
        ("${metadata.failure.attempts:int}", 3),
        ("${metadata.nested.deep:int}", 1),
        ("Dear ${payload.name}, ${payload.secs:int} s", "Dear Ada, 5 s"),
        ("${payload.name}${payload.name}", "AdaAda"),
        ("$${payload.name}", "${payload.name}"),
        ("cost: $5 and $${x}", "cost: $5 and ${x}"),
        ("$", "$"),
        ("a}b", "a}b"),
        ("plain", "plain"),
        ("", ""),
    ],
)
def test_a_text_is_resolved(template, value):
    resolved = resolve(template)

    assert resolved == value
    assert type(resolved) is type(value)


def test_the_whole_payload_can_be_read():
    assert resolve("${payload:json}") is not None
    assert resolve("${payload}", payload=3) == "3"
    assert resolve("${payload:int}", payload=3) == 3


def test_the_id_of_the_message_can_be_read():
    message = Message.of(1, id="order-1")

    assert compile_template("${id}").resolve(Scope(message)) == "order-1"


def test_values_of_the_run_can_be_read():
    context = {"region": "eu", "a.b": 1, "deep": {"x": 2}}

    assert resolve("${context.region}", context=context) == "eu"
    assert resolve("${context.a.b:int}", context=context) == 1
    assert resolve("${context.deep.x:int}", context=context) == 2


def test_objects_and_arrays_are_resolved_to_any_depth_but_their_names_are_not():
    value = {"a": ["${payload.name}", 3, {"${payload.name}": "${payload.secs:int}"}], "b": None}

    assert resolve(value) == {"a": ["Ada", 3, {"${payload.name}": 5}], "b": None}


def test_values_that_json_cannot_say_have_a_text_of_their_own():
    payload = {"d": Decimal("1.50"), "when": date(2026, 1, 2)}

    assert resolve("${payload.d} on ${payload.when}", payload) == "1.50 on 2026-01-02"
    assert resolve("${payload.d:number}", payload) == 1.5


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("${payload.none=x y}", "x y"),
        ("${payload.none=}", ""),
        ("${payload.none=a:b=c}", "a:b=c"),
        ("${payload.none:int=30}", 30),
        ("${payload.none:number=0.5}", 0.5),
        ("${payload.none:bool=false}", False),
        ('${payload.none:json={"a":{"b":"}"}}}', {"a": {"b": "}"}}),
        ("${payload.none:json=null}", None),
        ("${payload.secs:int=30}", 5),
        ("${payload.nothing=x}", "null"),
        ("${payload.name.first=x}", "x"),
        ("${payload.tags.7=x}", "x"),
        ("${payload.tags.-1=x}", "x"),
        ("${metadata.none=x}", "x"),
        ("${context.none=x}", "x"),
    ],
)
def test_a_default_stands_in_for_a_path_that_is_missing(template, value):
    assert resolve(template) == value


def test_a_default_that_was_changed_does_not_change_the_next_message():
    template = compile_template('${payload.none:json={"a":[]}}')
    scope = Scope(Message.of({}))

    template.resolve(scope)["a"].append(1)

    assert template.resolve(scope) == {"a": []}


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("${payload.nam}", "`${payload.nam}` has no value: the payload has no `nam`"),
        ("${payload.nam}", "there is `name`"),
        ("${payload.name.first}", "the payload has no `name.first`"),
        ("${payload.tags.9}", "the payload has no `tags.9`"),
        ("${metadata.none}", "the metadata has no `none`"),
        ("${context.none}", "the context has no `none`"),
        ("x ${payload.none:int} y", "`${payload.none:int}` has no value"),
        ("${payload.name:int}", "`${payload.name:int}` is the text 'Ada', which is not a whole"),
        ("${payload.share:int}", "is the number 0.5, which is not a whole number"),
        ("${payload.ok:int}", "is true, which is not a whole number"),
        ("${payload.nothing:int}", "is null, which is not a whole number"),
        ("${payload.tags:number}", "is an array, which is not a number"),
        ("${payload.secs:bool}", "which is not true or false"),
        ("${payload.order:bool}", "is an object"),
        ("${env.EDITOR}", "EDITOR may not be read; add it to yukta.variables.allowed"),
        ("${sys.java.home}", "java.home may not be read"),
        ("${env.HOME}", "HOME is not set"),
        ("${decrypted:mail}", "there is no secret `mail`: set YUKTA_SECRET_MAIL"),
    ],
)
def test_a_value_that_cannot_be_had_is_bad_input_naming_the_expression(template, said):
    assert said in refusal(template, environ={}).detail


@pytest.mark.parametrize("number", [math.nan, math.inf, "1e999", "0x10", "1_000", " 5", "٣", ""])
def test_what_is_no_finite_decimal_number_is_refused_as_one(number):
    refusal("${payload.x:number}", {"x": number})
    refusal("${payload.x:int}", {"x": number})


def test_a_value_that_has_no_text_is_bad_input_naming_the_expression():
    refused = refusal("x ${payload.x}", {"x": {"y": object()}})

    assert "`${payload.x}` cannot be written as text: /y" in refused.detail


@pytest.mark.parametrize("value", [10**400, 1, math.nan, [], {}, b"x", None, "x" * 999])
def test_a_refusal_describes_any_value_in_few_words(value):
    assert len(refusal("${payload.x:bool}", {"x": value}).detail) < 120


def test_a_huge_whole_number_is_one():
    assert resolve("${payload.x:number}", {"x": 10**400}) == 10**400
    refusal("${payload.x:int}", {"x": Decimal("NaN")})


def test_a_whole_float_is_a_whole_number():
    assert resolve("${payload.x:int}", {"x": 3.0}) == 3


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("${", "closing }"),
        ("${payload.x", "closing }"),
        ("a ${payload.x:int=3", "closing }"),
        ("${}", "names nothing"),
        ("${paylod.x}", "did you mean `payload`?"),
        ("${x}", "there is no `x` to read; there is payload"),
        ("${__class__}", "there is no `__class__`"),
        ("${payload.x:integer}", "did you mean `int`?"),
        ("${payload.x:}", "there is no type ``"),
        ("${payload..x}", "empty part"),
        ("${payload.x.}", "empty part"),
        ("${metadata}", "`metadata.name`"),
        ("${env}", "`env.name`"),
        ("${id.x}", "no members"),
        ("${payload.x:int=many}", "the default is not a whole number"),
        ("${payload.x:bool=yes}", "the default is not true or false"),
        ("${payload.x:json={}", "closing }"),
        ("${payload.x:json=[NaN]}", "not usable"),
        ("${payload.x:json={'a':1}}", "not JSON"),
        ("a${payload.x:json}", "must be the whole text"),
        ("${context.yukta.depth}", "belongs to the engine"),
        ("${env.DB_PASSWORD}", "looks like a secret"),
        ("${sys.yukta.var.api-key}", "looks like a secret"),
        ("${decrypted:}", "a secret's name"),
        ("${decrypted:mail", "closing }"),
        ("${decrypted:a b}", "a secret's name"),
        ("${decrypted}", "there is no `decrypted` to read"),
    ],
)
def test_a_malformed_expression_is_refused_when_it_is_compiled(template, said):
    with pytest.raises(BadInputError) as refused:
        compile_template({"deep": [template]})

    assert said in refused.value.detail
    assert "`${" in refused.value.detail


HOSTILE = [
    "${payload.__class__}",
    "${payload.__class__.__mro__}",
    "${payload.name.__len__}",
    "${payload.keys}",
    "${payload.order.get}",
    "${payload.tags.append}",
    "${metadata.__init__}",
    "${context.__class__}",
    "${payload.tags.99999999999999999999999}",
    "${payload.tags.²}",
    "${payload.tags.1e0}",
]


@pytest.mark.parametrize("template", HOSTILE)
def test_attributes_and_methods_are_never_reached(template):
    assert "has no value" in refusal(template).detail


def test_objects_are_opaque_even_when_their_attributes_are_named():
    @dataclass
    class Account:
        password: str

    refusal("${payload.account.password}", {"account": Account("hunter2")})


@given(st.text())
@example("${env.HOME}")
@example("decrypted:mail")
@example("$${payload.x}")
def test_what_an_expression_gives_is_never_read_for_further_expressions(text):
    assert resolve("${payload.x}", {"x": text}) == text
    assert resolve("a ${payload.x} b", {"x": text}) == f"a {text} b"


@given(st.text(alphabet="${}:=.payloadjsonint[]\"' \\\n\0é", max_size=40))
def test_any_text_is_compiled_or_refused_as_bad_input(text):
    try:
        template = compile_template(text)
    except BadInputError:
        return

    assert template.constant == (not has_expression(text))


@given(st.text())
def test_a_text_written_with_its_dollar_doubled_stands_for_itself(text):
    # A dollar right before the escape would be read as part of it.
    if "$${" in text or text.startswith("decrypted:"):
        return

    assert resolve(text.replace("${", "$${")) == text


json_texts = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(json_texts)
def test_type_json_gives_the_very_value(value):
    assert resolve("${payload.x:json}", {"x": value}) == value


@given(st.integers() | st.integers().map(str))
def test_type_int_gives_the_number_however_it_is_written(value):
    assert resolve("${payload.x:int}", {"x": value}) == int(value)


@given(
    st.recursive(
        st.integers() | st.sampled_from(["a", "${payload.name}", "$${x}"]),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=10,
    )
)
def test_a_value_is_constant_exactly_when_no_part_of_it_has_an_expression(value):
    template = compile_template(value)

    assert template.constant == (
        "${payload.name}" not in str(value).replace("'${payload.name}':", "")
    )


def test_a_template_says_what_it_reads():
    value = ["${payload.a} ${env.HOME}", "decrypted:mail", "$${context.x}"]

    assert compile_template(value).namespaces == {"payload", "env", "decrypted"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${payload.x}", True),
        ("a $${b} ${", True),
        ("$${payload.x}", False),
        ("$ {x}", False),
        ("decrypted:mail", True),
        ("decrypted: mail", False),
        ("is decrypted:mail", False),
        ("", False),
    ],
)
def test_a_text_is_known_to_have_an_expression(text, expected):
    assert has_expression(text) is expected


def test_a_trigger_has_no_message_to_read():
    with pytest.raises(BadInputError, match="no message is at hand"):
        compile_template("${payload.x=1}").resolve(Scope())


def test_a_scope_can_be_moved_to_the_next_message():
    scope = Scope(Message.of({"x": 1}), {"y": 2}, {"HOME": "/h"})
    template = compile_template("${payload.x} ${context.y} ${env.HOME}")

    assert template.resolve(scope.for_message(Message.of({"x": 3}))) == "3 2 /h"


def test_a_configuration_that_is_too_deep_is_bad_input():
    value: list = []
    for _ in range(300):
        value = [value]

    with pytest.raises(BadInputError, match="nested deeper"):
        compile_template(value)


class TestNumbers:
    """Options of the engine that take a number or one typed expression."""

    @pytest.mark.parametrize("text", ["${payload.s:int}", "${context.s:number=1}"])
    def test_one_typed_expression_is_a_number(self, text):
        assert not compile_number(text).constant

    @pytest.mark.parametrize(
        "text", ["5", "${payload.s}", "${payload.s:json}", "${payload.s:int}0", "decrypted:x", ""]
    )
    def test_anything_else_is_not(self, text):
        with pytest.raises(BadInputError, match="one typed expression"):
            compile_number(text)


class TestEnvironment:
    """`${env.X}` and `${sys.x}`."""

    ENVIRON: ClassVar = {
        "HOME": "/home/ada",
        "YUKTA_VAR_REGION": "eu",
        "EDITOR": "vi",
        "DB_PASSWORD": "hunter2",
        "YUKTA_VAR_API_TOKEN": "hunter2",
        "YUKTA_SECRET_MAIL": "hunter2",
    }

    def read(self, text, **settings):
        return resolve(text, environ=self.ENVIRON, settings=Settings(**settings))

    def test_harmless_names_and_workflow_variables_can_be_read(self):
        assert self.read("${env.HOME}") == "/home/ada"
        assert self.read("${env.YUKTA_VAR_REGION}") == "eu"
        assert self.read("${sys.yukta.var.region}") == "eu"
        assert self.read("${sys.user.home}") == "/home/ada"
        assert self.read("${sys.os.name}")

    def test_a_variable_of_the_settings_can_be_read(self):
        assert self.read("${sys.yukta.var.region}", var={"region": "us"}) == "us"

    def test_a_listed_name_can_be_read(self):
        assert self.read("${env.EDITOR}", variables={"allowed": ("EDITOR",)}) == "vi"

    def test_a_name_that_is_not_listed_cannot_be_read_even_with_a_default(self):
        with pytest.raises(BadInputError, match="may not be read"):
            self.read("${env.EDITOR=none}")

    @pytest.mark.parametrize("name", ["DB_PASSWORD", "YUKTA_VAR_API_TOKEN", "YUKTA_SECRET_MAIL"])
    def test_a_name_that_looks_secret_cannot_be_read_even_if_it_is_listed(self, name):
        with pytest.raises(BadInputError, match="looks like a secret") as refused:
            self.read("${env." + name + "}", variables={"allowed": (name,)})

        assert "hunter2" not in str(refused.value)

    def test_a_variable_that_is_not_set_has_no_value(self):
        with pytest.raises(BadInputError, match="YUKTA_VAR_X is not set"):
            self.read("${env.YUKTA_VAR_X}")


class TestSecrets:
    """`decrypted:name`."""

    ENVIRON: ClassVar = {"YUKTA_SECRET_MAIL_BOX": "hunter2"}

    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("decrypted:mail-box", "hunter2"),
            ("decrypted:Mail.Box", "hunter2"),
            ("${decrypted:mail_box}", "hunter2"),
            ("Bearer ${decrypted:mail-box}", "Bearer hunter2"),
            ("$${decrypted:mail-box}", "${decrypted:mail-box}"),
        ],
    )
    def test_a_secret_is_read_from_its_variable(self, text, value):
        assert resolve(text, environ=self.ENVIRON) == value

    def test_a_trigger_can_read_one(self):
        assert (
            compile_template("decrypted:mail-box").resolve(Scope(environ=self.ENVIRON)) == "hunter2"
        )

    def test_a_provider_of_ones_own_is_asked_instead(self):
        class Vault:
            def get(self, name):
                return f"vault:{name}"

        assert resolve("decrypted:mail", secrets=Vault()) == "vault:mail"

    def test_a_payload_that_names_a_secret_does_not_get_it(self):
        payload = {"x": "decrypted:mail-box", "y": "${decrypted:mail-box}"}

        assert resolve("${payload.x} ${payload.y}", payload, environ=self.ENVIRON) == (
            "decrypted:mail-box ${decrypted:mail-box}"
        )
