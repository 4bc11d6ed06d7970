"""What is gathered where nobody chose."""

from regard.lens.usual import usual_probes


def test_short_texts_keep_exact_rows_and_long_ones_a_map():
    short, long = ([probe.attribute for probe in usual_probes(length)] for length in (128, 129))
    assert short == ["rows", "entropy", "first_keys", "key_mass", "top_k"]
    assert long == ["entropy", "top_k", "first_keys", "key_mass", "heat_map"]
    assert usual_probes(3)[-1].k == 3
