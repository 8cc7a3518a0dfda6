"""Waiting and files: await, threads, databases, folders, logging, warnings, context managers."""

# %%
import asyncio
import contextlib
import contextvars
import logging
import os
import queue
import re
import sqlite3
import sys
import tempfile
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


# %%
async def fetch(n):
    await asyncio.sleep(0)
    return n * n


await asyncio.gather(*map(fetch, range(4)))

# %%
results = []


async def produce(line, n):
    for i in range(n):
        await line.put(i)
    await line.put(None)


async def consume(line):
    while (item := await line.get()) is not None:
        results.append(item)


line = asyncio.Queue()
await asyncio.gather(produce(line, 3), consume(line))
results

# %%
async def ticks(n):
    for i in range(n):
        yield i
        await asyncio.sleep(0)


[i async for i in ticks(3)], results

# %%
try:
    async with asyncio.timeout(0.001):
        await asyncio.sleep(60)
except TimeoutError as error:
    print('late', type(error).__name__)

# %%
async with asyncio.TaskGroup() as group:
    tasks = [group.create_task(fetch(n)) for n in (5, 6)]
squares = [task.result() for task in tasks]
squares

# %%
user = contextvars.ContextVar('user', default='nobody')
token = user.set('ann')
user.get()

# %%
total, lock = 0, threading.Lock()


def work(n):
    global total
    for _ in range(n):
        with lock:
            total += 1


threads = [threading.Thread(target=work, args=(100,)) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
total

# %%
with ThreadPoolExecutor(2) as pool:
    lengths = list(pool.map(len, ['a', 'bb', 'ccc']))
jobs = queue.SimpleQueue()
jobs.put(lengths)
jobs.get() is lengths, lengths

# %%
database = Path('shop.db')
with contextlib.closing(sqlite3.connect(database)) as db, db:
    db.execute('create table items (name text primary key, price real)')
    db.executemany('insert into items values (?, ?)', [('tea', 2.5), ('milk', 1.25)])
database.exists()

# %%
with contextlib.closing(sqlite3.connect(database)) as db:
    db.row_factory = sqlite3.Row
    items = [dict(row) for row in db.execute('select * from items order by price')]
items

# %%
folder = Path(tempfile.mkdtemp(dir='.'))
(folder / 'a.txt').write_text('one\ntwo\n')
(folder / 'sub').mkdir()
names = sorted(path.name for path in folder.iterdir())
names

# %%
os.chdir(folder / 'sub')
Path('here.txt').write_text('x')

# %%
Path.cwd().name, [path.name for path in Path('.').iterdir()]

# %%
# %cd -q ../..
Path('shop.db').exists()

# %%
with contextlib.chdir(folder):
    inside = Path('a.txt').read_text().split()
inside, Path('a.txt').exists()

# %%
(folder / 'a.txt').unlink()
(folder / 'sub' / 'here.txt').unlink()
(folder / 'sub').rmdir()
folder.rmdir()
folder.exists()

# %%
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format='%(levelname)s:%(name)s:%(message)s', force=True)
log = logging.getLogger('shop')
log.info('open %d', 1)
log.debug('not shown')

# %%
log.setLevel(logging.DEBUG)
log.debug('shown')

# %%
log.warning('still %s', 'here')
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always')
    warnings.warn('careful', UserWarning)
[str(each.message) for each in caught]

# %%
warnings.filterwarnings('error', category=RuntimeWarning)

# %%
warnings.warn('now an error', RuntimeWarning)


# %%
@contextlib.contextmanager
def step(name):
    print('begin', name)
    try:
        yield name.upper()
    except ZeroDivisionError:
        print('swallowed')
    finally:
        print('end', name)


with step('a') as title, contextlib.suppress(KeyError):
    print(title)
    {}['x']
with step('b'):
    1 / 0

# %%
stack = contextlib.ExitStack()
stack.callback(print, 'closed')
stack.close()

# %%
word = re.compile(r'(?P<first>\w)(\w*)')
match = word.search('hello world')
match['first'], match.span(), word.sub(lambda m: m['first'].upper() + m[2], 'hello world')

# %%
raise ExceptionGroup('two', [ValueError('a'), ExceptionGroup('in', [TypeError('b')])])

# %%
try:
    async with asyncio.TaskGroup() as group:
        group.create_task(fetch(None))
except* TypeError as caught_group:
    print(len(caught_group.exceptions), caught_group.exceptions[0])

# %%
# %%capture output
print('hidden')
1 + 1

# %%
output.stdout, os.environ.setdefault('SHOP', 'open')

# %%
# !echo $SHOP {total} | tr a-z A-Z
