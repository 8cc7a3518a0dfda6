"""A board that changes step by step."""

# %%
import numpy as np

board = np.zeros((8, 8), dtype=int)
board[1, 2] = board[2, 3] = 1
board[3, 1:4] = 1

# %%
def show(board):
    print('\n'.join(''.join('#' if cell else '.' for cell in row) for row in board))


show(board)

# %%
def neighbours(board):
    return sum(
        np.roll(np.roll(board, dy, 0), dx, 1)
        for dy in (-1, 0, 1)
        for dx in (-1, 0, 1)
        if (dy, dx) != (0, 0)
    )


def step(board):
    count = neighbours(board)
    return ((count == 3) | (board & (count == 2))).astype(int)

# %%
past = [board]
for _ in range(4):
    past.append(step(past[-1]))
show(past[-1])

# %%
board[0, 0] = 1
past[0][0, 0], past[0] is board

# %%
alive = [int(b.sum()) for b in past]
alive
