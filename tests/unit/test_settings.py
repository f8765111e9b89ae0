from pathlib import Path

import pytest

from rag_core.config import BertEmbedder, HashingEmbedder
from rag_core.errors import ConfigError
from rag_core.settings import load_layered_settings, load_settings, with_overrides

HASHING = "embedding.type=hashing"
SHIPPED = (
    "shipped profiles: clinicaltrials, clinicaltrials-cpu, dailymed, dailymed-cpu, default, gpu, pmc, pmc-cpu, splade"
)


def settings_of(
    *overrides: str, file: Path | None = None, profile: str | None = None, environment: dict[str, str] | None = None
):  # type: ignore[no-untyped-def]
    return load_settings(file, profile, overrides, environment or {})


def origins_of(*overrides: str, file: Path | None = None, environment: dict[str, str] | None = None) -> dict[str, str]:
    return dict(load_layered_settings(file, None, overrides, environment or {}).origins)


def complaint(*overrides: str, file: Path | None = None, profile: str | None = None, **environment: str) -> str:
    with pytest.raises(ConfigError) as raised:
        load_settings(file, profile, overrides, environment)
    return str(raised.value)


def yaml(folder: Path, text: str) -> Path:
    file = folder / "rag.yaml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("mode", "treatment"),
    [("block", "block"), ("flag", "allow_flagged"), ("regenerate", "allow_flagged"), ("off", "allow_flagged")],
)
def test_only_a_guard_that_blocks_also_blocks_what_its_judge_could_not_grade(mode: str, treatment: str) -> None:
    assert settings_of(f"guard.mode={mode}").guard.on_judge_error == treatment
    assert with_overrides(settings_of(), [f"guard.mode={mode}"]).guard.on_judge_error == treatment
    settings = settings_of(f"guard.mode={mode}", "guard.on_judge_error=allow_flagged")
    assert settings.guard.on_judge_error == "allow_flagged"


def test_without_anything_the_shipped_profile_counts() -> None:
    settings = settings_of()
    assert settings.profile == "default"
    assert (settings.chunking.type, settings.embedding.type, settings.retrieval.type) == ("sections", "bert", "hybrid")
    assert settings.store.url == "embedded"


def test_each_layer_overrides_those_before_it(tmp_path: Path) -> None:
    file = yaml(tmp_path, "chunking: {tokens: 150}\nprofiles: {mine: {chunking: {tokens: 120}}}")
    environment = {"RAG_CHUNKING__TOKENS": "100"}
    tokens = [
        settings_of().chunking.tokens,
        settings_of(file=file).chunking.tokens,
        settings_of(file=file, profile="mine").chunking.tokens,
        settings_of(file=file, profile="mine", environment=environment).chunking.tokens,
        settings_of("chunking.tokens=80", file=file, profile="mine", environment=environment).chunking.tokens,
        settings_of("chunking.tokens=80", "chunking.tokens=60", file=file).chunking.tokens,
    ]
    assert tokens == [200, 150, 120, 100, 80, 60]


def test_a_layer_leaves_the_other_keys_of_a_section_alone(tmp_path: Path) -> None:
    chunking = settings_of("chunking.tokens=120", file=yaml(tmp_path, "chunking: {overlap: 7}")).chunking
    assert (chunking.tokens, chunking.overlap, chunking.prefix_tokens) == (120, 7, 48)


def test_every_leaf_that_was_set_knows_who_set_it_last(tmp_path: Path) -> None:
    file = yaml(tmp_path, "chunking: {overlap: 7}\nlimits: {text_mb: 5}")
    origins = origins_of("chunking.tokens=120", file=file, environment={"RAG_LIMITS__TEXT_MB": "6"})
    assert origins["chunking.tokens"] == "command line"
    assert origins["chunking.overlap"] == str(file)
    assert origins["limits.text_mb"] == "environment"
    assert origins["embedding.type"] == "profile default"
    assert "chunking.prefix_tokens" not in origins


def test_a_profile_extends_another_and_the_default_where_it_says_nothing(tmp_path: Path) -> None:
    text = (
        "profiles:\n  child: {extends: parent, chunking: {tokens: 90}}\n  parent: {chunking: {tokens: 80, overlap: 9}}"
    )
    settings = settings_of(file=yaml(tmp_path, text), profile="child")
    assert (settings.profile, settings.chunking.tokens, settings.chunking.overlap) == ("child", 90, 9)
    assert settings.embedding == BertEmbedder(type="bert", model="all-MiniLM-L6-v2")


def test_a_file_can_redefine_the_default_profile(tmp_path: Path) -> None:
    file = yaml(tmp_path, "chunking: {overlap: 7}\nprofiles: {default: {chunking: {tokens: 120}}}")
    chunking = settings_of(file=file).chunking
    assert (chunking.tokens, chunking.overlap) == (120, 7)


def test_the_environment_can_choose_the_profile_and_the_caller_has_precedence(tmp_path: Path) -> None:
    file = yaml(tmp_path, "profiles: {a: {chunking: {tokens: 90}}, b: {chunking: {tokens: 80}}}")
    environment = {"RAG_PROFILE": "a"}
    assert settings_of(file=file, environment=environment).chunking.tokens == 90
    assert settings_of(file=file, profile="b", environment=environment).chunking.tokens == 80


def test_profiles_that_extend_each_other_are_refused_with_the_circle(tmp_path: Path) -> None:
    file = yaml(tmp_path, "profiles: {a: {extends: b}, b: {extends: a}}")
    assert (
        complaint(file=file, profile="a") == "profiles extend each other in a circle: a -> b -> a; remove one `extends`"
    )


def test_a_profile_that_is_not_there_is_refused_with_those_that_are() -> None:
    assert complaint(profile="defualt") == f"there is no profile defualt; {SHIPPED}; did you mean default?"


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert complaint(file=tmp_path / "none.yaml") == (
        f"there is no file {tmp_path}/none.yaml; give an existing one, or leave out --config"
    )


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("- a\n- b", "must be a mapping of sections, got ['a', 'b']"),
        ("chunking: {tokens: [", "must be YAML: line 1: "),
        ("profiles: [a]", "profiles must be a mapping of profiles, got ['a']"),
        ("profiles: {mine: 3}", "profile mine must be a mapping of sections, got 3"),
        ("1: 2", "1: unknown setting; `rag config show` lists the settings"),
    ],
)
def test_a_file_of_another_shape_is_refused_by_name(tmp_path: Path, text: str, rule: str) -> None:
    message = complaint(file=yaml(tmp_path, text), profile="mine" if "mine" in text else None)
    assert rule in message


def test_null_removes_a_key_and_brings_its_default_back(tmp_path: Path) -> None:
    file = yaml(tmp_path, "chunking: {overlap: 7}\nlimits: {file_mb: 1, text_mb: 2}")
    assert settings_of("chunking.overlap=null", file=file).chunking.overlap == 40
    assert settings_of("limits=null", file=file).limits.text_mb == 20
    assert "chunking.overlap" not in origins_of("chunking.overlap=null", file=file)
    assert not [key for key in origins_of("limits=null", file=file) if key.startswith("limits")]


def test_another_type_drops_the_settings_of_the_first() -> None:
    embedding = settings_of("embedding.dimension=32", HASHING).embedding
    assert embedding == HashingEmbedder(type="hashing", dimension=32)
    assert "embedding.model" not in origins_of(HASHING)
    assert origins_of(HASHING)["embedding.type"] == "command line"


def test_the_same_type_again_keeps_its_settings(tmp_path: Path) -> None:
    file = yaml(tmp_path, "embedding: {type: bert, precision: fp32}")
    assert settings_of(file=file).embedding == BertEmbedder(type="bert", model="all-MiniLM-L6-v2", precision="fp32")


@pytest.mark.parametrize(
    ("overrides", "setting", "rule", "value"),
    [
        (("chunking.tokens=3",), "chunking.tokens", "greater than or equal to 16", "got 3"),
        (("chunking.tokens=many",), "chunking.tokens", "valid integer", "got 'many'"),
        (("limits.text_mb=0",), "limits.text_mb", "greater than 0", "got 0"),
        (("tenant=Short",), "tenant", "should match pattern", "got 'Short'"),
        (("embedding.type=magic",), "embedding.type", "one of bert, sentence_transformers, hashing, python", "'magic'"),
        (("chunking.tokns=100",), "chunking.tokns", "unknown setting", "did you mean chunking.tokens?"),
        (("chunkin.tokens=100",), "chunkin", "unknown setting", "did you mean chunking?"),
        (("store=here",), "store", "valid dictionary", "got 'here'"),
    ],
)
def test_a_bad_value_is_refused_with_its_setting_rule_value_and_origin(
    overrides: tuple[str, ...], setting: str, rule: str, value: str
) -> None:
    message = complaint(*overrides)
    assert message.startswith(f"{setting}: ")
    assert rule in message
    assert value in message
    assert message.endswith("(set by command line)")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "embedding.type=brt",
            "embedding.type: must be one of bert, sentence_transformers, hashing, python, got 'brt'",
        ),
        ("embedding.type=brt", "; did you mean bert?"),
        ("embedding={type: null, model: m}", "embedding.type: this setting is required: one of bert, "),
        ("guard.mode=blok", "; did you mean block?"),
        ("retrieval.retrievers.dense.k=3", "the settings of retrieval.retrievers.dense are enabled, instead_of, type"),
        (
            "retrieval.retrievers.bm25.k2=3",
            "the settings of retrieval.retrievers.bm25 are b, enabled, instead_of, k1, type",
        ),
        ("graph={type: rules, kind: x}", "graph.kind: unknown setting; the settings of graph are enabled, type"),
        ("profils={}", "profils: unknown setting; did you mean profiles?"),
        ("tenant=Harbour", "; example: harbour-team"),
        ("chunking={type: python, object: acme.Mine}", "; example: acme.embedding:Mine"),
        (
            "retrieval.fusion={type: ltr}",
            "retrieval.fusion: ltr fusion must have coefficients (scores, ranks), got none",
        ),
        ("retrieval.fusion={type: ltr, intercept: 1}", "`rag train-fusion` learns them (set by"),
    ],
)
def test_a_refusal_names_what_was_likely_meant(override: str, message: str) -> None:
    assert message in complaint(override)


def test_a_misspelt_profile_is_named_next_to_those_of_the_file(tmp_path: Path) -> None:
    file = yaml(tmp_path, "profiles: {harbour: {}, quay: {}}")
    assert complaint(file=file, profile="harbor") == (
        f"there is no profile harbor; profiles of the file: harbour, quay; {SHIPPED}; did you mean harbour?"
    )


def test_the_origin_of_a_bad_value_is_the_layer_that_set_it(tmp_path: Path) -> None:
    file = yaml(tmp_path, "chunking: {tokens: 3}")
    assert complaint(file=file).endswith(f"(set by {file})")
    assert complaint(RAG_CHUNKING__TOKENS="3").endswith("(set by environment)")


def test_every_broken_rule_has_its_line() -> None:
    lines = complaint("chunking.tokens=3", "limits.text_mb=0", "colour=red").splitlines()
    assert [line.partition(":")[0] for line in lines] == ["chunking.tokens", "limits.text_mb", "colour"]


def test_an_overlap_as_large_as_a_chunk_is_refused() -> None:
    message = complaint("chunking.tokens=50", "chunking.overlap=60")
    assert message.startswith("chunking: ")
    assert "overlap must be in [0, tokens), got 60 of 50" in message


def test_an_overlap_as_large_as_a_fixed_size_is_refused() -> None:
    assert "overlap must be in [0, size), got 60 of 50" in complaint(
        "chunking.type=fixed", "chunking.size=50", "chunking.overlap=60"
    )


@pytest.mark.parametrize(
    ("pattern", "rule"),
    [
        ("(?P<year", "metadata.from_path: from_path must be a regular expression: missing >"),
        ("[0-9]+", "metadata.from_path: from_path must have named groups"),
    ],
)
def test_a_pattern_for_paths_without_named_groups_is_refused(pattern: str, rule: str) -> None:
    assert complaint(f"metadata.from_path='{pattern}'").startswith(rule)


def test_constants_of_metadata_keep_their_type() -> None:
    metadata = settings_of("metadata.set={year: 2024, open: true, share: 0.5, source: pmc, tags: [a, b]}").metadata
    assert metadata.set == {"year": 2024, "open": True, "share": 0.5, "source": "pmc", "tags": ("a", "b")}
    assert metadata.set["open"] is True


@pytest.mark.parametrize("text", ["chunking.tokens", "=3", ""])
def test_a_setting_without_a_key_or_a_value_is_refused(text: str) -> None:
    assert complaint(text) == f"--set takes SECTION.KEY=VALUE, got {text!r}"


def test_a_setting_below_a_single_value_takes_its_place() -> None:
    assert settings_of("store=x", "store.url=y").store.url == "y"
    assert settings_of("store.url=x", "store.url=y").store.url == "y"


def test_values_are_read_as_yaml() -> None:
    settings = settings_of("files.include=['*.md', '*.txt']", "parsing.detect_language=no", "limits.text_mb=1e-3")
    assert settings.files.include == ("*.md", "*.txt")
    assert settings.parsing.detect_language is False


@pytest.mark.parametrize("text", ["2024-02-28", "2024-02-30", "0b_"])
def test_a_date_is_text_and_so_is_what_only_looks_like_a_number(tmp_path: Path, text: str) -> None:
    assert settings_of(f"metadata.set.published={text}").metadata.set == {"published": text}


def test_a_date_in_a_file_is_text(tmp_path: Path) -> None:
    file = yaml(tmp_path, "metadata: {set: {published: 2024-02-30, updated: 2024-02-28}}")
    assert settings_of(file=file).metadata.set == {"published": "2024-02-30", "updated": "2024-02-28"}


def test_an_invalid_number_is_refused_with_its_file(tmp_path: Path) -> None:
    assert complaint(file=yaml(tmp_path, "limits: {text_mb: 0b_}")).startswith(f"cannot read {tmp_path}/rag.yaml: ")


def test_a_tenant_of_digits_is_text() -> None:
    assert settings_of("tenant=20240101").tenant == "20240101"
    assert settings_of(environment={"RAG_TENANT": "00012345"}).tenant == "00012345"
    assert settings_of("tenant=null", environment={"RAG_TENANT": "my-tenant"}).tenant == "default-tenant"


def test_a_dsn_is_used_unchanged() -> None:
    for dsn in ("postgresql://me:secret@host:5432/rag?sslmode=require", "host=/run/rag user=me dbname=rag"):
        assert settings_of(f"store.url={dsn}").store.url == dsn
        assert settings_of(environment={"RAG_STORE__URL": dsn}).store.url == dsn


def test_the_environment_names_a_setting_by_two_underscores() -> None:
    environment = {"RAG_EMBEDDING__TYPE": "hashing", "RAG_EMBEDDING__DIMENSION": "64", "RAG_TENANT": "my-tenant"}
    settings = settings_of(environment=environment)
    assert settings.embedding == HashingEmbedder(type="hashing", dimension=64)
    assert settings.tenant == "my-tenant"


def test_environment_variables_that_are_not_settings_are_ignored() -> None:
    environment = {"RAG_HOME": "/x", "PATH": "/bin", "RAGTIME": "1", "RAG_PROFILE": "default"}
    assert settings_of(environment=environment) == settings_of()


def test_an_unknown_setting_in_the_environment_is_refused() -> None:
    assert complaint(RAG_CHUNKING__TOKNS="100").startswith("chunking.tokns: unknown setting; did you mean")


def test_settings_do_not_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        settings_of().limits.text_mb = 3


@pytest.mark.parametrize("weight", [".inf", "-.inf", ".nan"])
def test_a_weight_is_a_finite_number(weight: str) -> None:
    message = complaint(f"retrieval.fusion.weights={{dense: {weight}}}")
    assert "retrieval.fusion.weights.dense" in message
    assert "finite number" in message


DSN = "postgresql://me:hunter2@host/rag"


@pytest.mark.parametrize(
    ("text", "got"),
    [
        (f"store: {DSN}", "got 'postgresql://me:[secret]@host/rag'"),
        (f"store: {{url: [{DSN}]}}", "got [secret]"),
        (
            "generation: {type: openai, model: m, apikey: hunter2}",
            "unknown setting; did you mean generation.api_key?",
        ),
        ("generation: {type: openai, model: m, api_key_env: hunter-2}", "got '[secret]'"),
        ("generation: {type: openai, model: m, api_key_env: sk-hunter2hunter2}", "got '[secret]'"),
        (f"generation: {{type: openai, base_url: '{DSN}'}}", "generation.model: this setting is required"),
        (f"store: {{url: '{DSN}'}}\nguard: {{stream: sentence}}\nprompt: {{citations: footnote}}", "got footnote"),
        (DSN, "got 'postgresql://me:[secret]@host/rag'"),
        (f'store: {{url: "{DSN}', "must be YAML: line 1: found unexpected end of stream"),
    ],
)
def test_a_complaint_shows_no_password(tmp_path: Path, text: str, got: str) -> None:
    file = yaml(tmp_path, text)
    file.chmod(0o600)
    message = complaint(file=file)
    assert got in message
    assert "hunter" not in message


def test_a_complaint_shows_the_first_60_characters() -> None:
    assert complaint(f"store={'x' * 100}") == (
        f"store: Input should be a valid dictionary or instance of StoreSettings, got '{'x' * 59} (set by command line)"
    )


def test_a_conflict_between_settings_is_reported_without_their_values() -> None:
    message = complaint("guard.stream=sentence", "prompt.citations=footnote")
    assert message == "guard.stream sentence requires prompt.citations inline, got footnote"


@pytest.mark.parametrize("device", ["gpu", "CPU", "cuda:", "cuda:x"])
def test_a_device_is_one_of_pytorch(device: str) -> None:
    assert complaint(f"embedding.device='{device}'").startswith("embedding.device: String should match pattern")


def test_the_devices_of_pytorch_are_cpu_cuda_and_mps() -> None:
    devices = ["cpu", "cuda", "cuda:1", "mps"]
    assert [settings_of(f"embedding.device='{device}'").embedding.device for device in devices] == devices


@pytest.mark.parametrize("setting", ["limits.text_mb", "answering.timeout_ms", "parsing.memory_mb"])
def test_a_limit_is_a_finite_number(setting: str) -> None:
    assert complaint(f"{setting}=.inf").startswith(f"{setting}: Input should be a finite number, got inf")


def test_hosts_are_compared_in_lower_case() -> None:
    assert settings_of("guard.link_hosts=[Docs.Example.com, localhost]").guard.link_hosts == (
        "docs.example.com",
        "localhost",
    )


@pytest.mark.parametrize(
    "host", ["https://docs.example.com", "docs.example.com/a", "docs.example.com:8080", "*.example.com", "[::1]", ""]
)
def test_a_value_that_is_not_a_bare_host_is_refused(host: str) -> None:
    assert complaint(f"guard.link_hosts=['{host}']").startswith("guard.link_hosts.0: String should match pattern")


def test_hosts_of_the_api_are_names_ends_of_names_or_all() -> None:
    hosts = settings_of("api.hosts=[RAG.example.org, '*.pages.example', '*']").api.hosts
    assert hosts == ("rag.example.org", "*.pages.example", "*")


@pytest.mark.parametrize("host", ["https://rag.example.org", "rag.example.org:8000", "rag.*", "*rag", "a b", ""])
def test_a_host_of_the_api_has_no_scheme_and_no_port(host: str) -> None:
    assert complaint(f"api.hosts=['{host}']").startswith("api.hosts.0: String should match pattern")


@pytest.mark.parametrize(
    "location", ["docs", "ftp://a/b", "memory://a", "s3://a::file:///b", "simplecache::s3://a", ""]
)
def test_an_allowed_location_is_an_absolute_folder_or_a_uri_of_a_known_scheme(location: str) -> None:
    assert "each of allowed_locations must be an absolute folder" in complaint(
        f"ingestion.allowed_locations=['{location}']"
    )


def test_settings_of_access_are_not_part_of_the_pipelines_version() -> None:
    version = settings_of().pipeline_version
    for override in (
        *("api.read_only=true", "auth.mode=keys", "api.cors_origins=['https://app.example.org']"),
        *("ingestion.allowed_locations=[/srv]", "ingestion.private_networks=true", "ingestion.bulk_documents=7"),
    ):
        assert settings_of(override).pipeline_version == version
    assert settings_of("ingestion.group=7").pipeline_version != version


def test_the_version_is_that_of_the_selected_profile_alone(tmp_path: Path) -> None:
    file = yaml(
        tmp_path,
        "version: 2026-11-26\nprofiles: {mine: {version: 1.2.0-rc.1, chunking: {tokens: 90}}, next: {extends: mine}}",
    )
    versions = [settings_of(file=file, profile=profile).version for profile in (None, "mine", "next")]
    assert versions == ["2026-11-26", "1.2.0-rc.1", ""]
    assert settings_of(file=file, profile="mine").pipeline_version.startswith("mine:v1.2.0-rc.1+")
    assert settings_of().pipeline_version.startswith("default:v1+")
    assert settings_of("version=9.0.0", file=file, profile="mine").version == "9.0.0"


@pytest.mark.parametrize("version", ["1.2", "v1.2.0", "1.2.0+build", "26-11-2026"])
def test_a_version_is_three_numbers_or_a_date(version: str, tmp_path: Path) -> None:
    assert "version: " in complaint(file=yaml(tmp_path, f"version: {version}"))
