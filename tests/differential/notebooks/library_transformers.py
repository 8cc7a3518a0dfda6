"""A tiny language model from a configuration, trained by the Trainer (transformers, tokenizers)."""

# %%
import os

os.environ['HF_HUB_OFFLINE'] = '1'
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, Trainer, TrainingArguments, set_seed

set_seed(0)

# %%
lines = ['the cat sat on the mat', 'the dog sat on the log', 'a cat and a dog'] * 8
raw = Tokenizer(models.WordLevel(unk_token='[UNK]'))
raw.pre_tokenizer = pre_tokenizers.Whitespace()
raw.train_from_iterator(lines, trainers.WordLevelTrainer(special_tokens=['[UNK]', '[PAD]', '[EOS]']))
tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, unk_token='[UNK]', pad_token='[PAD]', eos_token='[EOS]')
tokenizer('the cat')['input_ids'], len(tokenizer)

# %%
pad_token = tokenizer.pad_token
pad_token

# %%
config = GPT2Config(vocab_size=len(tokenizer), n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=2, eos_token_id=2, pad_token_id=1)
model = GPT2LMHeadModel(config)
sum(p.numel() for p in model.parameters())

# %%
class Lines(torch.utils.data.Dataset):
    def __init__(self, lines):
        self.rows = [tokenizer(line, padding='max_length', max_length=8, truncation=True)['input_ids'] for line in lines]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, at):
        row = torch.tensor(self.rows[at])
        return {'input_ids': row, 'labels': row}


dataset = Lines(lines)
len(dataset), dataset[0]['input_ids']

# %%
arguments = TrainingArguments('out', num_train_epochs=2, per_device_train_batch_size=8, learning_rate=0.02, report_to=[], save_strategy='no', logging_steps=3, disable_tqdm=True, use_cpu=True, seed=0)
trainer = Trainer(model=model, args=arguments, train_dataset=dataset)

# %%
result = trainer.train()
round(result.training_loss, 3)

# %%
trainer.model is model, [round(entry['loss'], 3) if isinstance(entry['loss'], float) else entry['loss'] for entry in trainer.state.log_history if 'loss' in entry]

# %%
model.eval()
with torch.no_grad():
    logits = model(torch.tensor([tokenizer('the cat sat')['input_ids']])).logits
tokenizer.decode(logits[0, -1].argmax())

# %%
model.save_pretrained('saved')
again = GPT2LMHeadModel.from_pretrained('saved')
torch.equal(again.transformer.wte.weight, model.transformer.wte.weight)
