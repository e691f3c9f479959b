"""The footer is rewritten without touching anything else in the file."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_export import footer


def rewritten(path: Path, pairs: dict[str, str]) -> None:
    data = path.read_bytes()
    length = footer.footer_length(data[-8:])
    start = len(data) - 8 - length
    path.write_bytes(data[:start] + footer.add_metadata(data[start:-8], pairs))


@pytest.mark.parametrize("keys", [0, 1, 13, 14, 15, 200])
def test_keys_are_added_to_those_that_are_there(tmp_path: Path, keys: int) -> None:
    path = tmp_path / "x.parquet"
    table = pa.table({"a": [1, 2, 3], "b": ["x", None, "z"]})
    own = {f"key {n}": f"value {n}" for n in range(keys)}
    pq.write_table(table.replace_schema_metadata(own), path)
    rewritten(path, {"geo": '{"ö": 1}', "second": ""})
    found = {k.decode(): v.decode() for k, v in pq.read_metadata(path).metadata.items()}
    assert found.pop("ARROW:schema")  # pyarrow's own, always there
    assert found == {**own, "geo": '{"ö": 1}', "second": ""}
    assert pq.read_table(path).to_pydict() == table.to_pydict()


def test_a_footer_without_any_keys_gets_its_first(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": [1.5]}), path, store_schema=False)
    assert pq.read_metadata(path).metadata is None
    rewritten(path, {"k": "v"})
    metadata = pq.read_metadata(path)
    assert metadata.metadata == {b"k": b"v"}
    assert metadata.created_by.startswith("parquet-cpp")  # the field after it still reads
    assert pq.read_table(path).to_pydict() == {"a": [1.5]}


@settings(deadline=None)  # the machine may be busy
@given(
    values=st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), max_size=50),
    pairs=st.dictionaries(st.text(max_size=20), st.text(max_size=300), max_size=20),
)
def test_any_file_reads_the_same_afterwards(
    tmp_path_factory: pytest.TempPathFactory, values: list[int | None], pairs: dict[str, str]
) -> None:
    path = tmp_path_factory.mktemp("footer") / "x.parquet"
    table = pa.table({"v": pa.array(values, pa.int64())})
    pq.write_table(table, path, row_group_size=7, store_schema=False)
    rewritten(path, pairs)
    found = pq.read_metadata(path).metadata or {}
    assert {k.decode(): v.decode() for k, v in found.items()} == pairs
    assert pq.read_table(path).column("v").to_pylist() == values


def test_what_is_no_parquet_file_is_refused() -> None:
    with pytest.raises(footer.FooterError, match="not a Parquet file"):
        footer.footer_length(b"12345678")


def test_a_footer_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": [1]}), path)
    data = path.read_bytes()
    whole = data[len(data) - 8 - footer.footer_length(data[-8:]) : -8]
    for cut in range(len(whole)):
        with pytest.raises(footer.FooterError):
            footer.add_metadata(whole[:cut], {"k": "v"})
