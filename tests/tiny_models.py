"""Small models with random weights, in the same files as real models."""

from collections.abc import Sequence
from pathlib import Path

WORDS = tuple("how do i rotate turn the keys key weekly doors are of oak and a house has two by night".split())  # noqa: SIM905
WINDOW = 32
"""The window of these models, in tokens."""


def bert_files(folder: Path, head: str, labels: int = 1, width: int = 32, names: Sequence[str] = ()) -> Path:
    """A two-layer BERT with a head.

    `head` is the name of a transformers auto class without `AutoModel`. Only the number of positions limits its texts.
    `names` are the class names of a classifier.
    """
    import torch
    import transformers

    torch.manual_seed(7)
    config = transformers.BertConfig(
        vocab_size=len(WORDS) + 5,
        hidden_size=width,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=WINDOW,
        initializer_range=0.5,
        **({"id2label": dict(enumerate(names))} if names else {"num_labels": labels}),
    )
    getattr(transformers, f"AutoModel{head}").from_config(config).save_pretrained(folder)
    _tokenizer_files(folder)
    return folder


def roberta_files(folder: Path, padding: int) -> Path:
    """A two-layer RoBERTa. `padding` is the id of its padding token; its positions begin after this number."""
    import torch
    import transformers

    torch.manual_seed(7)
    config = transformers.XLMRobertaConfig(
        vocab_size=len(WORDS) + 5,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=WINDOW + padding + 1,
        type_vocab_size=1,
        pad_token_id=padding,
        initializer_range=0.5,
    )
    transformers.AutoModel.from_config(config).save_pretrained(folder)
    _tokenizer_files(folder, padding)
    return folder


def multi_vector_files(folder: Path) -> Path:
    """A late-interaction model in the files of sentence-transformers. It projects each token to 8 numbers."""
    import torch
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    encoder = Transformer(str(bert_files(folder / "bert", "")))
    torch.manual_seed(7)
    projection = Dense(32, 8, bias=False, activation_function=torch.nn.Identity(), module_input_name="token_embeddings")
    modules = [encoder, projection, MultiVectorMask(), Normalize(module_input_name="token_embeddings")]
    MultiVectorEncoder(modules=modules, device="cpu").save_pretrained(str(folder / "saved"), create_model_card=False)
    return folder / "saved"


def splade_files(folder: Path) -> Path:
    """A SPLADE model in the files of sentence-transformers. With random logits, a text has about half of all terms."""
    from sentence_transformers import SparseEncoder

    encoder = SparseEncoder(str(bert_files(folder / "bert", "ForMaskedLM", width=16)), device="cpu")
    encoder.save_pretrained(str(folder / "saved"), create_model_card=False)
    return folder / "saved"


def two_sided_splade_files(folder: Path) -> Path:
    """A SPLADE model that looks up the weights of a question's words, in the files of sentence-transformers."""
    import torch
    from sentence_transformers import SparseEncoder
    from sentence_transformers.base.modules import Router, Transformer
    from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding, SpladePooling

    documents = Transformer(str(bert_files(folder / "bert", "ForMaskedLM")), transformer_task="fill-mask")
    torch.manual_seed(7)
    questions = SparseStaticEmbedding(tokenizer=documents.tokenizer, weight=torch.rand(len(WORDS) + 5))
    router = Router.for_query_document(query_modules=[questions], document_modules=[documents, SpladePooling("max")])
    SparseEncoder(modules=[router], device="cpu").save_pretrained(str(folder / "saved"), create_model_card=False)
    return folder / "saved"


def _tokenizer_files(folder: Path, padding: int = 0) -> None:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    marks = ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    marks.insert(padding, "[PAD]")
    vocabulary = {word: number for number, word in enumerate((*marks, *WORDS))}
    words = Tokenizer(models.WordLevel(vocabulary, "[UNK]"))
    words.normalizer = normalizers.Lowercase()
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    special = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    tokens = {f"{name}_token": token for name, token in special.items()}
    PreTrainedTokenizerFast(tokenizer_object=words, **tokens).save_pretrained(folder)
