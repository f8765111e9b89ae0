"""A Llama of random weights that vLLM serves: 260 kB, made in a second. Its tokens are bytes, and it writes letters."""

from pathlib import Path
from string import ascii_lowercase

SPECIAL = ("<s>", "</s>", "<pad>")
TEMPLATE = (
    "{% for message in messages %}<s>{{ message.role }}\n{{ message.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)
WINDOW = 8192


def llama_files(folder: Path) -> Path:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    words = _tokenizer_files(folder)
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=WINDOW,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
    )
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    with torch.no_grad():  # what is no letter is less likely than the likeliest letter
        model.lm_head.weight[[word not in ascii_lowercase for word in words]] = 0
    model.save_pretrained(folder)
    return folder


def _tokenizer_files(folder: Path) -> list[str]:
    """The files of the tokenizer."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE(vocab={word: n for n, word in enumerate(words)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    start, end, pad = SPECIAL
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=start, eos_token=end, pad_token=pad, chat_template=TEMPLATE
    ).save_pretrained(folder)
    return words
