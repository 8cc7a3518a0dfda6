"""Counting, matching and formatting text."""

# %%
import re
from collections import Counter, defaultdict

text = '''The rain in the north falls on the hills; the hills feed the river,
and the river feeds the fields in the south.'''
words = re.findall(r'[a-z]+', text.lower())
len(words)

# %%
counts = Counter(words)
counts.most_common(3)

# %%
index = defaultdict(list)
for at, word in enumerate(words):
    index[word[0]].append(at)
dict(index)['r']

# %%
for word, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:4]:
    print(f'{word:<8}|{"*" * count:>6}|{count / len(words):6.1%}')

# %%
chain = defaultdict(Counter)
for one, two in zip(words, words[1:]):
    chain[one][two] += 1
chain['the'].most_common(2)

# %%
import random

random.seed(4)
word, made = 'the', ['the']
for _ in range(8):
    following = chain[word] or counts
    word = random.choices(list(following), following.values())[0]
    made.append(word)
' '.join(made)

# %%
shift = lambda text, by: ''.join(chr((ord(c) - 97 + by) % 26 + 97) if c.isalpha() else c for c in text)
secret_text = shift('attack at dawn', 5)
secret_text, shift(secret_text, -5)

# %%
counts.update(['the'] * 10)
alias = counts
alias['rain'] += 1
counts.most_common(1), counts['rain']

# %%
print('ünïcödé', '漢字', sep=' | ')
'漢字'.encode()

# %%
unique = sorted(set(words), key=words.index)
unique[:4]
