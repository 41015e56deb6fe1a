"""Tables of functions in place of generated bindings."""

from evaluator.cuda_source.source_files import source_files, why_not_tabled, with_table
from evaluator.protocol.frames import BuildRequest

REQUEST = BuildRequest(
    name="ext", cpp_sources=["int f(int n);\nint g();"], functions={"f": "f", "g": 'says "a\\b"\n?? é'}, with_cuda=True
)


def main_text(request):
    return source_files(request)[0].text


def test_the_sources_stay_and_the_bindings_become_a_table():
    sources, table = with_table(main_text(REQUEST), REQUEST)
    assert sources == "#include <torch/extension.h>\nint f(int n);\nint g();"
    assert table.startswith('#line 4 "main.cpp"\n')  # the line of the generated bindings
    assert 'warpgrade::bind<&f>("f", "f"),' in table
    assert "PyInit_ext" in table


def test_a_description_is_one_plain_literal():
    _, table = with_table(main_text(REQUEST), REQUEST)
    (row,) = [line for line in table.split("\n") if "bind<&g>" in line]
    assert row == r'warpgrade::bind<&g>("g", "says \042a\134b\042\012\077\077 \303\251"),'


def test_a_text_without_generated_bindings_has_no_table():
    assert with_table("int f(int n);", REQUEST) is None


def test_a_usual_request_may_have_a_table():
    assert why_not_tabled(REQUEST) is None
