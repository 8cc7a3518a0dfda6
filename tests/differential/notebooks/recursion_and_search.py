"""Queens, hanoi, a maze."""

# %%
def queens(n, placed=()):
    if len(placed) == n:
        yield placed
        return
    row = len(placed)
    for column in range(n):
        if all(column != c and abs(column - c) != row - r for r, c in enumerate(placed)):
            yield from queens(n, (*placed, column))


solutions = list(queens(6))
len(solutions), solutions[0]

# %%
moves = []


def hanoi(n, source='A', target='C', spare='B'):
    if n:
        hanoi(n - 1, source, spare, target)
        moves.append(source + target)
        hanoi(n - 1, spare, target, source)


hanoi(4)
len(moves), moves[:5]

# %%
maze = ['S.#.', '..#.', '#...', '..#E']

# %%
from collections import deque


def shortest(maze):
    start = next((r, c) for r, row in enumerate(maze) for c, cell in enumerate(row) if cell == 'S')
    queue, came_from = deque([start]), {start: None}
    while queue:
        r, c = queue.popleft()
        if maze[r][c] == 'E':
            path = []
            at = (r, c)
            while at:
                path.append(at)
                at = came_from[at]
            return path[::-1]
        for there in ((r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)):
            if 0 <= there[0] < 4 and 0 <= there[1] < 4 and maze[there[0]][there[1]] != '#' and there not in came_from:
                came_from[there] = (r, c)
                queue.append(there)


path = shortest(maze)
path

# %%
def flatten(items):
    for item in items:
        if isinstance(item, list):
            yield from flatten(item)
        else:
            yield item


list(flatten([1, [2, [3, [4]], 5], []]))

# %%
cache = {}


def collatz(n):
    if n not in cache:
        cache[n] = 0 if n == 1 else 1 + collatz(n // 2 if n % 2 == 0 else 3 * n + 1)
    return cache[n]


max(range(1, 60), key=collatz)

# %%
len(cache), cache[27]

# %%
def forever(n):
    return forever(n + 1)


try:
    forever(0)
except RecursionError as error:
    print(type(error).__name__)
