"""Decoders that were measured: whose layout shared weights have, and what a turn of a loop adds."""

from dataclasses import replace

import pytest

from tremula.base.types import FLOAT, HALF
from tremula.validate.workloads.models import decoding
from tremula.validate.workloads.models.shared_weights import (
    Numbering,
    Use,
    Weight,
    rearranging_cycles,
)

SMALL = Weight(256, 512, 0, 0)


@pytest.mark.parametrize(
    ("before", "between", "is_prompts"),
    [
        (30, 2000, True),  # operation 130, in the loop 2130
        (230, 2000, False),  # 330, 2330
        (900, 2000, True),  # 1000, 3000
        (0, 900, True),  # 100, 1000: what ends first comes first
    ],
)
def test_layouts_go_by_the_text_of_operation_numbers(before, between, is_prompts):
    """PopART compares descriptions of equally good candidates, which begin with a number."""
    numbering = Numbering(before_prompt=before, in_prompt=0, between=between, in_word=0)
    assert numbering.prompt_is_first(0, 1, SMALL) is is_prompts


def test_two_thirds_of_chatglms_weights_have_the_prompts_layout():
    """Layers whose operations have numbers from 200 to 999 are laid out for single words."""
    glm = decoding.CHATGLM_6B
    firsts = [
        [glm.numbering.prompt_is_first(i, glm.n_layers, weight) for weight in glm.weights]
        for i in range(glm.n_layers)
    ]
    all_firsts, none = [True] * 4, [False] * 4
    assert firsts[:2] == [all_firsts, [True, False, False, False]]
    assert firsts[2:10] == [none] * 8
    assert firsts[10:] == [[False, True, True, True], *[all_firsts] * 17]


def test_a_product_pays_for_the_layout_of_another():
    """Only the product whose layout a weight does not have moves it, layer by layer."""
    prompt, word = Use(64, HALF, 0.2), Use(1, FLOAT)
    prompts = Numbering(before_prompt=0, in_prompt=0, between=2000, in_word=0)
    words = replace(prompts, before_prompt=300)

    def cycles(numbering, n_layers):
        return rearranging_cycles((SMALL,), numbering, n_layers, prompt, word, "gc200")

    of_prompt, of_word = cycles(prompts, 3)
    assert of_prompt == 0 < of_word
    assert cycles(prompts, 6) == (0, 2 * of_word)
    of_prompt, of_word = cycles(words, 3)
    assert of_prompt > 0 == of_word


def test_equal_products_share_a_layout():
    """No product moves a weight that was laid out for one like it."""
    numbering = Numbering(before_prompt=0, in_prompt=0, between=2000, in_word=0)
    assert rearranging_cycles((SMALL,), numbering, 2, Use(1), Use(1), "gc200") == (0, 0)


def test_each_cache_operation_branches_on_all_chips():
    """GPT-2's layers ask whether it is the first step; ChatGLM's loop carries caches instead."""
    gpt = replace(decoding.GPT2_XL, n_layers=4)
    branch = decoding._branch_seconds("gc200", gpt.n_chips)
    assert branch > decoding._branch_seconds("gc200", 1) > 0
    assert decoding._loop_seconds(gpt, 1, 8, "gc200") == pytest.approx(5 * branch)
    glm = replace(gpt, has_prefill=True)
    carried = decoding._carried_seconds("gc200", 2 * gpt.width * 8)
    assert decoding._loop_seconds(glm, 1, 8, "gc200") == pytest.approx(carried + branch)
