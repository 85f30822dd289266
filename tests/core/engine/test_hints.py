from pharos.core.engine.hints import locked


def test_an_engine_that_asks_for_a_key_leads_to_the_setting_and_one_that_refuses_it_to_its_name() -> None:
    assert "set `credential`" in locked(None)
    assert "under `credentials`" in locked(None)
    assert locked("gpu-key").startswith("it refuses gpu-key, the `credential` of this backend")
